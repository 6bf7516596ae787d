// Prefetches memory for a kernel's caller, which reads it next. A loop that alternates between reading and coding
// defeats the hardware prefetchers, and prefetching everything at once waits for memory like reading does.
#pragma once

#include <cstddef>
#include <cstdint>

namespace bitsnap::entropy {

// For group i of 64 values, prefetches group_bytes bytes (64, 128 or 256) at i * group_bytes of up to two streams. The
// addresses need not be valid; a null stream is ignored.
struct ReadAhead {
  const std::byte* streams[2] = {nullptr, nullptr};
  std::size_t group_bytes = 0;
};

// Prefetches one group after another. It has no branch except for elements of four bytes; for a null stream it
// prefetches the same line repeatedly.
class ReadAheadCursor {
 public:
  // Starts at group `first` and moves up or down.
  ReadAheadCursor(const ReadAhead& ahead, std::size_t first) noexcept : line_stride_(ahead.group_bytes / 2) {
    for (int i = 0; i < 2; ++i) {
      const bool none = ahead.streams[i] == nullptr;
      strides_[i] = none ? 0 : ahead.group_bytes;
      at_[i] = reinterpret_cast<std::uintptr_t>(none ? &ahead : static_cast<const void*>(ahead.streams[i])) +
               first * strides_[i];
    }
  }

  [[gnu::always_inline]] void up() noexcept {
    ask();
    at_[0] += strides_[0];
    at_[1] += strides_[1];
  }
  [[gnu::always_inline]] void down() noexcept {
    at_[0] -= strides_[0];
    at_[1] -= strides_[1];
    ask();
  }

 private:
  [[gnu::always_inline]] void ask() const noexcept {
    for (const std::uintptr_t at : at_) {
      __builtin_prefetch(reinterpret_cast<const void*>(at), 0, 3);
      __builtin_prefetch(reinterpret_cast<const void*>(at + line_stride_), 0, 3);
      if (line_stride_ > 64) {
        __builtin_prefetch(reinterpret_cast<const void*>(at + 64), 0, 3);
        __builtin_prefetch(reinterpret_cast<const void*>(at + 192), 0, 3);
      }
    }
  }

  std::uintptr_t at_[2];
  std::size_t strides_[2];
  std::size_t line_stride_;
};

}  // namespace bitsnap::entropy
