// A background executor: two teams for one run, of which one works at a time. The threads of the first have lowered
// their priority; the caller and the threads that it starts when the work is urgent form the second.
//
// A thread that finds the other team working hands its place in the run over as a ticket, which a thread of that team
// takes. Threads that wait look at the urgency every few milliseconds, so that set_urgent() need not know the runs.
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "exec/executor.hpp"
#include "exec/item_run.hpp"
#include "os/process.hpp"

namespace bitsnap::exec {
namespace {

constexpr int kDefaultNicer = 10;
constexpr auto kBetweenLooks = std::chrono::milliseconds(5);

std::atomic<bool> is_background = false;
std::atomic<bool> is_work_urgent = false;
std::atomic<int> nicer = kDefaultNicer;

class BackgroundTeams {
 public:
  BackgroundTeams(ItemRun& run, unsigned size) : run_(run), size_(size) {}
  BackgroundTeams(const BackgroundTeams&) = delete;
  BackgroundTeams& operator=(const BackgroundTeams&) = delete;
  ~BackgroundTeams() {
    for (std::thread& helper : helpers_) helper.join();
  }

  void lead() {
    run_.hand_over([this] { return recruit(); });
    ++teams_[1].threads;  // the caller
    std::unique_lock lock(mutex_);
    while (!run_.is_finished()) {
      Team& team = teams_[is_urgent() ? 1 : 0];
      const bool is_own = is_urgent() || (team.threads == 0 && !can_start_threads_);
      start_helpers(team, tickets_ - (is_own && tickets_ > 0 ? 1 : 0));
      if (is_own && tickets_ > 0) {
        work(lock, true);
      } else {
        changed_.wait_for(lock, kBetweenLooks);
      }
    }
    changed_.notify_all();
  }

 private:
  struct Team {
    std::size_t threads = 0;
    std::size_t idle = 0;  // helpers that wait for tickets
  };

  bool recruit() noexcept {
    {
      const std::lock_guard lock(mutex_);
      ++tickets_;
    }
    changed_.notify_all();
    return true;
  }

  // Precondition of the next two functions: `mutex_` is held.
  void start_helpers(Team& team, std::size_t wanted) {
    while (can_start_threads_ && team.idle < wanted && team.threads < size_) {
      try {
        helpers_.emplace_back([this, &team] { serve(team); });
      } catch (const std::exception&) {  // fewer threads are enough
        can_start_threads_ = false;
        return;
      }
      ++team.threads;
      ++team.idle;
    }
  }
  // Takes a ticket.
  void work(std::unique_lock<std::mutex>& lock, bool is_second) {
    --tickets_;
    const bool is_alone = is_second && !is_urgent();
    lock.unlock();
    const bool has_left =
        run_.participate([this] { return recruit(); }, [&] { return is_alone || is_urgent() == is_second; });
    lock.lock();
    if (!has_left) ++tickets_;
    changed_.notify_all();
  }

  void serve(Team& team) {
    const bool is_second = &team == &teams_[1];
    if (!is_second) static_cast<void>(os::lower_priority(nicer.load()));
    std::unique_lock lock(mutex_);
    while (!run_.is_finished()) {
      if (tickets_ == 0 || is_urgent() != is_second) {
        changed_.wait_for(lock, kBetweenLooks);
        continue;
      }
      --team.idle;
      work(lock, is_second);
      ++team.idle;
    }
    changed_.notify_all();
  }

  ItemRun& run_;
  const std::size_t size_;
  std::mutex mutex_;  // locked before the run's mutex
  std::condition_variable changed_;
  std::size_t tickets_ = 0;
  bool can_start_threads_ = true;
  std::array<Team, 2> teams_ = {};    // [1]: the one that works while the work is urgent
  std::vector<std::thread> helpers_;  // grows until the run is finished; then the caller joins all
};

class BackgroundExecutor final : public Executor {
 public:
  explicit BackgroundExecutor(unsigned threads) : Executor(threads) {}

 private:
  [[nodiscard]] bool runs_one_inline() const noexcept override { return false; }
  void drive(ItemRun& run, unsigned team) override { BackgroundTeams(run, team).lead(); }
};

}  // namespace

void work_in_background(int nice_increment) noexcept {
  nicer.store(nice_increment);
  is_background.store(true);
}

void set_urgent(bool is_urgent) noexcept { is_work_urgent.store(is_urgent); }

bool is_urgent() noexcept { return is_work_urgent.load(std::memory_order_relaxed); }

bool is_in_background() noexcept { return is_background.load(); }

std::unique_ptr<Executor> make_background_executor(unsigned threads) {
  return std::make_unique<BackgroundExecutor>(threads);
}

}  // namespace bitsnap::exec
