// What a kernel asks for while it codes, because its caller is going to read it next: a pass that reads, codes and
// reads again lets the processor's own foresight sleep, and asking for all at once waits for the memory as reading
// would.
#pragma once

#include <cstddef>
#include <cstdint>

namespace bitsnap::entropy {

// For group i of 64 values, group_bytes bytes from i * group_bytes on of up to two streams. Nothing is read, and the
// addresses need not be valid; a null stream is none.
struct ReadAhead {
  const std::byte* streams[2] = {nullptr, nullptr};
  std::size_t group_bytes = 0;

  void ask_for(std::size_t group) const noexcept {
    for (const std::byte* const stream : streams) {
      if (stream == nullptr) continue;
      const auto at = reinterpret_cast<std::uintptr_t>(stream) + group * group_bytes;
      for (std::size_t line = 0; line < group_bytes; line += 64) {
        __builtin_prefetch(reinterpret_cast<const void*>(at + line), 0, 3);
      }
    }
  }
};

}  // namespace bitsnap::entropy
