// The ways to make pages of mapped memory present without changing them. Of this floor only. Thread-safe.
//
// Each returns 0 or an errno: ENOMEM, ENOSPC or EFAULT where there is no page to be had. `address` is a multiple of the
// page size.
#pragma once

#include <cstddef>
#include <cstdint>

namespace bitsnap::os {

// Whether the system has populate_by_advice(), since Linux 5.14.
[[nodiscard]] bool can_populate_by_advice() noexcept;

[[nodiscard]] int populate_by_advice(void* address, std::size_t size_bytes, bool for_writing) noexcept;

// Asks for the pages where they lie, which is refused in words, and then reads a byte of each. `offset` is that of the
// address in the memory that `fd` is of.
[[nodiscard]] int populate_by_touch(int fd, std::uint64_t offset, const void* address, std::size_t size_bytes) noexcept;

}  // namespace bitsnap::os
