// WriteTurn: lets one writing call of a store handle run at a time. Unlike a mutex, the turn may be given back by
// another thread than the one that took it: one thread may encode a save, and another may publish it. Thread-safe.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>

namespace bitsnap::store {

// Must outlive what take() returns.
class WriteTurn {
 public:
  struct Release {
    void operator()(WriteTurn* turn) const noexcept { turn->give_back(); }
  };
  // Gives the turn back when it is destroyed.
  using Held = std::unique_ptr<WriteTurn, Release>;

  // Waits until no other call has the turn.
  [[nodiscard]] Held take() {
    std::unique_lock lock(mutex_);
    is_free_again_.wait(lock, [this] { return !is_taken_; });
    is_taken_ = true;
    return Held(this);
  }

 private:
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
