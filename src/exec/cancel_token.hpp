// Cancels an operation of another thread. Copies share one flag; any thread may use any copy.
#pragma once

#include <atomic>
#include <memory>

namespace bitsnap::exec {

class CancelToken {
 public:
  CancelToken() : flag_(std::make_shared<std::atomic<bool>>(false)) {}

  // Permanent.
  void request_cancel() const noexcept { flag_->store(true, std::memory_order_release); }
  [[nodiscard]] bool is_cancelled() const noexcept { return flag_->load(std::memory_order_acquire); }

 private:
  std::shared_ptr<std::atomic<bool>> flag_;
};

}  // namespace bitsnap::exec
