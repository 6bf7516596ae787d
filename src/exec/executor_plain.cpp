// The executor on plain threads: started one by one as a call recruits them, joined before it returns.
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "exec/executor.hpp"
#include "exec/item_run.hpp"

namespace bitsnap::exec {
namespace {

// The threads of one call. A recruit is a ticket, taken by a thread that waits, by a new one, or, if none can be
// started, by the leader once it has nothing else to do.
class PlainTeam {
 public:
  PlainTeam(ItemRun& run, unsigned size) : run_(run), max_helpers_(size - 1) { helpers_.reserve(max_helpers_); }
  PlainTeam(const PlainTeam&) = delete;
  PlainTeam& operator=(const PlainTeam&) = delete;
  ~PlainTeam() {
    for (std::thread& helper : helpers_) helper.join();
  }

  void lead() {
    run_.lead([this] { return recruit(); });
    serve();
  }

 private:
  bool recruit() noexcept {
    const std::lock_guard lock(mutex_);
    ++tickets_;
    if (tickets_ > idle_ && helpers_.size() < max_helpers_) {
      try {
        helpers_.emplace_back([this] { serve(); });
      } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): the system has no more threads; fewer do it
      }
    }
    changed_.notify_one();
    return true;
  }

  void serve() {
    std::unique_lock lock(mutex_);
    for (;;) {
      if (run_.is_finished()) {
        changed_.notify_all();
        return;
      }
      ++idle_;
      changed_.wait(lock, [this] { return tickets_ > 0 || run_.is_finished(); });
      --idle_;
      if (tickets_ == 0) continue;
      --tickets_;
      lock.unlock();
      run_.participate([this] { return recruit(); });
      lock.lock();
    }
  }

  ItemRun& run_;
  const std::size_t max_helpers_;
  std::mutex mutex_;  // taken before the run's own
  std::condition_variable changed_;
  std::size_t tickets_ = 0;
  std::size_t idle_ = 0;
  std::vector<std::thread> helpers_;  // grows until the run is finished, then is joined by the leader
};

class PlainExecutor final : public Executor {
 public:
  explicit PlainExecutor(unsigned threads) : Executor(threads) {}

 private:
  void drive(ItemRun& run, unsigned team) override { PlainTeam(run, team).lead(); }
};

}  // namespace

std::unique_ptr<Executor> make_plain_executor(unsigned threads) { return std::make_unique<PlainExecutor>(threads); }

}  // namespace bitsnap::exec
