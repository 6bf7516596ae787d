// WriteTurn: lets one writing call of a store handle run at a time. Unlike a mutex, the turn may be given back by
// another thread than the one that took it: one thread may encode a save, and another may publish it. Thread-safe.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>

#include <bitsnap/error.hpp>

#include "base/try.hpp"

namespace bitsnap::store {

// Must outlive what take() returns.
class WriteTurn {
 public:
  struct Release {
    void operator()(WriteTurn* turn) const noexcept { turn->give_back(); }
  };
  // Gives the turn back when it is destroyed.
  using Held = std::unique_ptr<WriteTurn, Release>;

  // Waits until no other call has the turn, or `interrupted` returns true, if there is such a function: `cancelled`.
  [[nodiscard]] Result<Held> take(const std::function<bool()>& interrupted) {
    std::unique_lock lock(mutex_);
    const auto is_free = [this] { return !is_taken_; };
    if (!interrupted) is_free_again_.wait(lock, is_free);
    while (!is_free()) {
      lock.unlock();  // the function may take long, and call this store
      if (interrupted()) return fail(ErrorKind::cancelled, "interrupted while waiting for another call of the store");
      lock.lock();
      is_free_again_.wait_for(lock, kBetweenChecks, is_free);
    }
    is_taken_ = true;
    return Held(this);
  }

 private:
  static constexpr std::chrono::milliseconds kBetweenChecks{20};

  void give_back() noexcept {
    {
      const std::lock_guard lock(mutex_);
      is_taken_ = false;
    }
    is_free_again_.notify_one();
  }

  std::mutex mutex_;
  std::condition_variable is_free_again_;
  bool is_taken_ = false;
};

}  // namespace bitsnap::store
