// Uses close_range(), or closes what /proc lists one by one, with raw system calls because opendir() allocates.
#include "os/descriptor_closing_posix.hpp"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace bitsnap::os {
namespace {

constexpr long kCloseRange = 436;

// An entry of getdents64(): inode, offset, length of the entry, type, name.
constexpr std::size_t kLengthAt = 16;
constexpr std::size_t kNameAt = 19;

// -1 for "." and "..".
int descriptor_of(const char* name) noexcept {
  int number = 0;
  for (; *name != '\0'; ++name) {
    if (*name < '0' || *name > '9') return -1;
    number = number * 10 + (*name - '0');
  }
  return number;
}

}  // namespace

void close_descriptors_by_listing(int first) noexcept {
  const int directory = ::open("/proc/self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (directory < 0) {
    // Without /proc. With a limit in the millions, trying each number would take seconds.
    constexpr rlim_t kMost = 65536;
    rlimit limit{};
    const rlim_t end = ::getrlimit(RLIMIT_NOFILE, &limit) == 0 ? std::min(limit.rlim_cur, kMost) : kMost;
    for (int fd = first; fd < static_cast<int>(end); ++fd) ::close(fd);
    return;
  }
  alignas(std::uint64_t) char entries[2048];
  long got;
  // The list is in the order of the numbers, so closing some skips none of the others.
  while ((got = ::syscall(SYS_getdents64, directory, entries, sizeof(entries))) > 0) {
    for (long at = 0; at < got;) {
      std::uint16_t length_bytes = 0;
      std::memcpy(&length_bytes, entries + at + kLengthAt, sizeof(length_bytes));
      const int fd = descriptor_of(entries + at + kNameAt);
      if (fd >= first && fd != directory) ::close(fd);
      at += length_bytes;
    }
  }
  ::close(directory);
}

void close_descriptors_from(int first) noexcept {
  if (::syscall(kCloseRange, static_cast<unsigned>(first), ~0U, 0) != 0) close_descriptors_by_listing(first);
}

}  // namespace bitsnap::os
