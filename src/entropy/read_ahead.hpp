// What a kernel asks for while it codes, because its caller is going to read it next: a pass that reads, codes and
// reads again lets the processor's own foresight sleep, and asking for all at once waits for the memory as reading
// would.
#pragma once

#include <cstddef>
#include <cstdint>

namespace bitsnap::entropy {

// For group i of 64 values, group_bytes bytes (64, 128 or 256, the same for all) from i * group_bytes on of up to two
// streams. Nothing is read, and the addresses need not be valid; a null stream is none.
struct ReadAhead {
  const std::byte* streams[2] = {nullptr, nullptr};
  std::size_t group_bytes = 0;
};

// Asks for one group after the other. Without branches but for elements of four bytes: a stream that is none asks for
// the same line again and again.
class ReadAheadCursor {
 public:
  // From group `first` on, up or down.
  ReadAheadCursor(const ReadAhead& ahead, std::size_t first) noexcept : line_step_(ahead.group_bytes / 2) {
    for (int i = 0; i < 2; ++i) {
      const bool none = ahead.streams[i] == nullptr;
      steps_[i] = none ? 0 : ahead.group_bytes;
      at_[i] = reinterpret_cast<std::uintptr_t>(none ? &ahead : static_cast<const void*>(ahead.streams[i])) +
               first * steps_[i];
    }
  }

  [[gnu::always_inline]] void up() noexcept {
    ask();
    at_[0] += steps_[0];
    at_[1] += steps_[1];
  }
  [[gnu::always_inline]] void down() noexcept {
    at_[0] -= steps_[0];
    at_[1] -= steps_[1];
    ask();
  }

 private:
  [[gnu::always_inline]] void ask() const noexcept {
    for (const std::uintptr_t at : at_) {
      __builtin_prefetch(reinterpret_cast<const void*>(at), 0, 3);
      __builtin_prefetch(reinterpret_cast<const void*>(at + line_step_), 0, 3);
      if (line_step_ > 64) {
        __builtin_prefetch(reinterpret_cast<const void*>(at + 64), 0, 3);
        __builtin_prefetch(reinterpret_cast<const void*>(at + 192), 0, 3);
      }
    }
  }

  std::uintptr_t at_[2];
  std::size_t steps_[2];
  std::size_t line_step_;
};

}  // namespace bitsnap::entropy
