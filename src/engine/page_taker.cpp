// Pieces of pages, each taken by one thread.
#include "engine/page_taker.hpp"

#include <algorithm>
#include <utility>

#include "base/no_throw.hpp"

namespace bitsnap::engine {
namespace {

// What one thread takes at a time. Small, because the end of an Engine waits for one, and the system may let no other
// thread of the process map memory meanwhile.
constexpr std::uint64_t kTakenAtOnce = std::uint64_t{16} << 20;

}  // namespace

PageTaker::PageTaker(std::uint64_t size_bytes, Take take)
    : size_bytes_(size_bytes),
      take_(std::move(take)),
      pieces_(static_cast<std::size_t>((size_bytes + kTakenAtOnce - 1) / kTakenAtOnce), Piece::left) {}

PageTaker::~PageTaker() {
  {
    const std::lock_guard lock(mutex_);
    is_ending_ = true;
  }
  for (std::thread& thread : threads_) thread.join();
}

Result<void> PageTaker::take(std::uint64_t offset, std::uint64_t bytes, exec::Executor& executor) {
  if (bytes == 0) return {};
  const auto first = static_cast<std::size_t>(offset / kTakenAtOnce);
  const auto end = std::min(static_cast<std::size_t>((offset + bytes - 1) / kTakenAtOnce) + 1, pieces_.size());
  return executor.run(end - first, executor.default_slots(), [&](std::size_t item, std::size_t) -> Result<void> {
    Piece& piece = pieces_[first + item];
    {
      // A background thread ends each piece that it begins, and waits for nothing.
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return piece != Piece::begun; });
      if (std::exchange(piece, piece == Piece::taken ? piece : Piece::begun) == Piece::taken) return {};
    }
    return take_begun(first + item);
  });
}

Result<void> PageTaker::take_begun(std::size_t piece) {
  const std::uint64_t begin = piece * kTakenAtOnce;
  Result<void> taken = no_throw("pages", [&] { return take_(begin, std::min(kTakenAtOnce, size_bytes_ - begin)); });
  {
    const std::lock_guard lock(mutex_);
    pieces_[piece] = taken ? Piece::taken : Piece::left;
  }
  changed_.notify_all();
  return taken;
}

void PageTaker::take_rest_in_background(unsigned threads) {
  if (std::exchange(has_begun_, true)) return;
  {
    const std::lock_guard lock(mutex_);
    if (std::ranges::find(pieces_, Piece::left) == pieces_.end()) return;
  }
  // Without threads, take() does it later.
  static_cast<void>(no_throw("pages", [&]() -> Result<void> {
    for (unsigned i = 0; i < threads; ++i) threads_.emplace_back([this] { run(); });
    return {};
  }));
}

void PageTaker::run() {
  for (;;) {
    std::unique_lock lock(mutex_);
    const auto next = std::ranges::find(pieces_, Piece::left);
    if (is_ending_ || next == pieces_.end()) return;
    *next = Piece::begun;
    lock.unlock();
    if (take_begun(static_cast<std::size_t>(next - pieces_.begin()))) continue;
    // The next call that needs the pages gets the error.
    lock.lock();
    is_ending_ = true;
    return;
  }
}

}  // namespace bitsnap::engine
