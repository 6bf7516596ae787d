// Memory of this process: what the system accounts to it, and pages that return to the system when freed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include <bitsnap/error.hpp>

namespace bitsnap::os {

struct ProcessMemory {
  std::uint64_t resident_bytes = 0;       // in memory now
  std::uint64_t peak_resident_bytes = 0;  // maximum ever
  std::uint64_t anonymous_bytes = 0;      // in memory now and not from a file: allocated and touched
};

// unsupported if the system does not report it.
[[nodiscard]] Result<ProcessMemory> process_memory();

struct PageDeleter {
  std::size_t size_bytes = 0;
  void operator()(std::byte* pages) const noexcept;
};
// Memory that returns to the system when it is freed; an allocator might keep it.
using Pages = std::unique_ptr<std::byte[], PageDeleter>;
// Zeroed memory; nullptr if there is none.
[[nodiscard]] Pages allocate_pages(std::size_t size_bytes) noexcept;
// Returns the pages after the first `size_bytes` (at least 1) to the system.
void shrink_pages(Pages& pages, std::size_t size_bytes) noexcept;

inline constexpr std::size_t kOfferedBytes = std::size_t{1} << 21;  // a huge page on most processors
// Zeroed memory for what can be had again: the system may take pages of it back, see offer_pages(). A forked child
// finds zeros. nullptr if there is none, if the system cannot do that, or if it limits addresses (RLIMIT_AS, strict
// overcommitting), because it cannot take those back.
[[nodiscard]] Pages allocate_spare_pages(std::size_t size_bytes) noexcept;
// From now on, the system may take back any of the pages that lie whole within the range, without asking, until it is
// written to again. A page that was taken reads as zeros, so what is read has to be checked. Precondition: the range
// lies in spare pages.
void offer_pages(std::byte* first, std::size_t size_bytes) noexcept;

// From now on, the threads of this process share one heap, so that memory that one of them frees serves the others,
// too. For a process whose threads allocate little while they work.
void share_one_heap() noexcept;
// Returns free memory that the allocator keeps to the system. Takes some milliseconds, and later allocations take the
// memory from the system again.
void return_free_memory() noexcept;

[[nodiscard]] std::size_t page_size_bytes() noexcept;

}  // namespace bitsnap::os
