// Takes the pages of an arena from the system: at once those that the next copy needs, and the rest in the background.
// The first touch of a page costs several times as much as copying into it.
//
// All functions may be called by one thread at a time; the background threads are this object's own. Not for use in a
// forked child, which does not have these threads.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include <bitsnap/error.hpp>

#include "exec/executor.hpp"

namespace bitsnap::engine {

class PageTaker {
 public:
  // `take` makes the pages of a range present. Several threads call it.
  using Take = std::function<Result<void>(std::uint64_t offset, std::uint64_t bytes)>;
  PageTaker(std::uint64_t size_bytes, Take take);
  // Waits for the pieces that are being taken, and drops the rest.
  ~PageTaker();
  PageTaker(const PageTaker&) = delete;
  PageTaker& operator=(const PageTaker&) = delete;

  // Returns when the pages of the range are present. Takes those that nobody has taken; an error leaves them for the
  // next call.
  [[nodiscard]] Result<void> take(std::uint64_t offset, std::uint64_t bytes, exec::Executor& executor);

  // Takes all other pages on `threads` threads, until one fails. Later calls do nothing.
  void take_rest_in_background(unsigned threads);

 private:
  enum class Piece : std::uint8_t { left, begun, taken };

  // Precondition: the piece has begun.
  [[nodiscard]] Result<void> take_begun(std::size_t piece);
  void run();

  const std::uint64_t size_bytes_;
  const Take take_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Piece> pieces_;
  bool is_ending_ = false;  // background threads begin no further piece
  bool has_begun_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace bitsnap::engine
