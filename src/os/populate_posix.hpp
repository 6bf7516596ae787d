// Makes pages of mapped memory present without changing them. Used by src/os only. Thread-safe.
//
// Each function returns 0 or an errno: ENOMEM, ENOSPC or EFAULT if there is no memory. `address` is a multiple of the
// page size.
#pragma once

#include <cstddef>
#include <cstdint>

namespace bitsnap::os {

// Whether the system has populate_by_advice(), since Linux 5.14.
[[nodiscard]] bool can_populate_by_advice() noexcept;

[[nodiscard]] int populate_by_advice(void* address, std::size_t size_bytes, bool for_writing) noexcept;

// Allocates the pages through `fd`, which fails with an error instead of a signal, and then reads a byte of each.
// `offset`: of `address` in the memory of `fd`.
[[nodiscard]] int populate_by_touch(int fd, std::uint64_t offset, const void* address, std::size_t size_bytes) noexcept;

}  // namespace bitsnap::os
