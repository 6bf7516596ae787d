// madvise(MADV_POPULATE_*), and for older kernels fallocate(), which allocates pages of shared memory and fails if
// there are none, so that touching them afterwards does not raise SIGBUS.
#include "os/populate_posix.hpp"

#include <fcntl.h>
#include <sys/mman.h>

#include <cerrno>

#include "os/memory.hpp"

namespace bitsnap::os {
namespace {

// By number: the C library that packages are built against lacks the names.
constexpr int kPopulateRead = 22;
constexpr int kPopulateWrite = 23;

}  // namespace

bool can_populate_by_advice() noexcept { return ::madvise(nullptr, 0, kPopulateWrite) == 0; }

int populate_by_advice(void* address, std::size_t size_bytes, bool for_writing) noexcept {
  for (;;) {
    if (::madvise(address, size_bytes, for_writing ? kPopulateWrite : kPopulateRead) == 0) return 0;
    if (errno != EINTR && errno != EAGAIN) return errno;
  }
}

int populate_by_touch(int fd, std::uint64_t offset, const void* address, std::size_t size_bytes) noexcept {
  int failed;
  do {
    failed = ::fallocate(fd, FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset), static_cast<off_t>(size_bytes));
  } while (failed != 0 && errno == EINTR);
  if (failed != 0) return errno;
  const auto* const bytes = static_cast<const volatile unsigned char*>(address);
  const std::size_t page_bytes = page_size_bytes();
  for (std::size_t at = 0; at < size_bytes; at += page_bytes) static_cast<void>(bytes[at]);
  return 0;
}

}  // namespace bitsnap::os
