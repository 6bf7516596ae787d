// An executor on plain threads, which are started when a call recruits them and joined before it returns.
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "exec/executor.hpp"
#include "exec/item_run.hpp"

namespace bitsnap::exec {
namespace {

// The threads of one call. A recruit is a ticket. A waiting thread or a new one takes it; if no thread can be started,
// the leader takes it when it has nothing else to do.
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
      } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): fewer threads are enough
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
  std::mutex mutex_;  // locked before the run's mutex
  std::condition_variable changed_;
  std::size_t tickets_ = 0;
  std::size_t idle_ = 0;
  std::vector<std::thread> helpers_;  // grows until the run is finished; then the leader joins all
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
