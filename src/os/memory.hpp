// The memory of this process, as the system accounts it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include <bitsnap/error.hpp>

namespace bitsnap::os {

struct ProcessMemory {
  std::uint64_t resident_bytes = 0;       // in memory now
  std::uint64_t peak_resident_bytes = 0;  // most ever, or since reset_peak_resident()
  std::uint64_t anonymous_bytes = 0;      // in memory now and not from a file: what was allocated and touched
};

// unsupported where the system does not tell.
[[nodiscard]] Result<ProcessMemory> process_memory();

// The peak is counted anew from what is resident now; unsupported or io where the system refuses. For measurements.
[[nodiscard]] Result<void> reset_peak_resident();

struct PageDeleter {
  std::size_t size_bytes = 0;
  void operator()(std::byte* pages) const noexcept;
};
// Memory that is the system's again once it is freed, which an allocator may keep for the next time.
using Pages = std::unique_ptr<std::byte[], PageDeleter>;
// Zeros; nullptr where there is no memory.
[[nodiscard]] Pages allocate_pages(std::size_t size_bytes) noexcept;
// Gives back what lies behind the first `size_bytes`, at least 1, but for the rest of a page.
void shrink_pages(Pages& pages, std::size_t size_bytes) noexcept;

[[nodiscard]] std::size_t page_size_bytes() noexcept;

}  // namespace bitsnap::os
