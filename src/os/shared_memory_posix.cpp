// memfd_create(), seals and mmap(), on Linux.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <limits>

#include "base/try.hpp"
#include "os/descriptor_posix.hpp"
#include "os/errno_error.hpp"
#include "os/memory.hpp"
#include "os/populate_posix.hpp"
#include "os/process.hpp"
#include "os/shared_memory.hpp"

namespace bitsnap::os {
namespace {

constexpr unsigned kSizeSeals = F_SEAL_SHRINK | F_SEAL_GROW;
constexpr unsigned kNoExecSeal = 0x0008;  // MFD_NOEXEC_SEAL, since Linux 6.3
constexpr std::size_t kMaxNameBytes = 200;
constexpr std::string_view kObject = "shared memory";

std::string bytes_of(std::uint64_t size_bytes, const std::string& what) {
  return std::to_string(size_bytes) + " bytes of " + what;
}

tl::unexpected<Error> fail_errno(int error, std::string_view operation) {
  return os::fail_errno(error, operation, kObject);
}

// Memory that no code runs from: newer systems warn of other memory, and may refuse it.
Descriptor create_anonymous(const char* name) noexcept {
  constexpr unsigned kFlags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
  const int fd = ::memfd_create(name, kFlags | kNoExecSeal);
  if (fd >= 0 || errno != EINVAL) return Descriptor(fd);
  return Descriptor(::memfd_create(name, kFlags));
}

// The same without memfd_create(): an unnamed file, which nothing can seal.
Descriptor create_in_shared_folder() noexcept { return open_descriptor("/dev/shm", O_TMPFILE | O_EXCL | O_RDWR, 0600); }

bool is_size_sealed(int fd) noexcept {
  const int seals = ::fcntl(fd, F_GET_SEALS);
  return seals >= 0 && (static_cast<unsigned>(seals) & kSizeSeals) == kSizeSeals;
}

// Whether this process may make memory and seal it. If it may not, then neither may the other process.
bool has_seals() noexcept {
  const Descriptor fd = create_anonymous("bitsnap-probe");
  return (fd.is_open() && ::fcntl(fd.get(), F_ADD_SEALS, kSizeSeals) == 0) || !is_refused_call(errno);
}

}  // namespace

MappedMemory::MappedMemory(MappedMemory&& other) noexcept { *this = std::move(other); }

MappedMemory& MappedMemory::operator=(MappedMemory&& other) noexcept {
  if (this == &other) return *this;
  unmap();
  address_ = std::exchange(other.address_, nullptr);
  size_bytes_ = std::exchange(other.size_bytes_, 0);
  offset_ = other.offset_;
  access_ = other.access_;
  process_ = other.process_;
  descriptor_ = std::move(other.descriptor_);
  return *this;
}

MappedMemory::~MappedMemory() { unmap(); }

bool MappedMemory::is_here() const noexcept { return address_ != nullptr && process_ == process_id(); }

void MappedMemory::unmap() noexcept {
  // In a forked child other memory may be at this address.
  if (is_here()) ::munmap(address_, size_bytes_);
  address_ = nullptr;
}

ConstByteSpan MappedMemory::bytes() const noexcept {
  if (!is_here()) return {};
  return {static_cast<const std::byte*>(address_), static_cast<std::size_t>(size_bytes_)};
}

ByteSpan MappedMemory::writable_bytes() const noexcept {
  if (access_ != MemoryAccess::read_write || !is_here()) return {};
  return {static_cast<std::byte*>(address_), static_cast<std::size_t>(size_bytes_)};
}

Result<void> MappedMemory::populate(std::uint64_t offset, std::uint64_t size_bytes) const {
  const std::string operation =
      "populate " + std::to_string(size_bytes) + " bytes at offset " + std::to_string(offset) + " of";
  const auto refuse = [&](const std::string& reason) {
    return fail(ErrorKind::invalid_argument, operation + " mapped memory: " + reason);
  };
  if (!is_here()) return refuse("it is not mapped in this process");
  if (offset > size_bytes_ || size_bytes > size_bytes_ - offset) {
    return refuse("it has " + std::to_string(size_bytes_) + " bytes");
  }
  if (size_bytes == 0) return {};
  const std::uint64_t start = offset - offset % page_size_bytes();
  const auto length = static_cast<std::size_t>(offset + size_bytes - start);
  std::byte* const address = static_cast<std::byte*>(address_) + start;
  const int error = descriptor_.is_open() ? populate_by_touch(descriptor_.get(), offset_ + start, address, length)
                                          : populate_by_advice(address, length, access_ == MemoryAccess::read_write);
  if (error == 0) return {};
  if (error == ENOMEM || error == ENOSPC || error == EFAULT) {
    return fail(ErrorKind::resource_exhausted, operation + " mapped memory: the system has no memory left");
  }
  return fail_errno(error, operation, "mapped memory");
}

void MappedMemory::prefer_huge_pages() const noexcept {
  if (is_here()) ::madvise(address_, static_cast<std::size_t>(size_bytes_), MADV_HUGEPAGE);
}

SharedMemory::SharedMemory(Descriptor descriptor, std::uint64_t size_bytes) noexcept
    : descriptor_(std::move(descriptor)), size_bytes_(size_bytes) {}

Result<SharedMemory> SharedMemory::make(std::string_view debug_name, std::uint64_t size_bytes, unsigned more_seals) {
  BITSNAP_TRY(check_path("create shared memory", debug_name));
  const std::string name(debug_name.substr(0, kMaxNameBytes));
  const std::string object = bytes_of(size_bytes, "shared memory " + name);
  constexpr std::uint64_t kMaxBytes =
      std::min<std::uint64_t>(std::numeric_limits<off_t>::max(), std::numeric_limits<std::ptrdiff_t>::max());
  if (size_bytes == 0 || size_bytes > kMaxBytes) {
    return fail(ErrorKind::invalid_argument, "create " + object + ": expected 1 to " + std::to_string(kMaxBytes));
  }
  Descriptor fd = create_anonymous(name.c_str());
  if (!fd.is_open() && is_refused_call(errno)) {
    const int error = errno;
    fd = create_in_shared_folder();
    struct ::statvfs folder{};
    if (!fd.is_open())
      return fail_errno(error, "create", object + ", also not in /dev/shm: the system call memfd_create");
    // Touching a page for which the folder has no room would kill the process.
    if (::fstatvfs(fd.get(), &folder) == 0 && folder.f_blocks != 0 && folder.f_bavail < size_bytes / folder.f_frsize) {
      return fail(ErrorKind::resource_exhausted,
                  "create " + object + ": the system refuses memfd_create, and /dev/shm " + "has room for " +
                      std::to_string(folder.f_bavail * folder.f_frsize) + " bytes only");
    }
  }
  if (!fd.is_open()) return fail_errno(errno, "create", object);
  if (::ftruncate(fd.get(), static_cast<off_t>(size_bytes)) != 0) return fail_errno(errno, "create", object);
  if (::fcntl(fd.get(), F_ADD_SEALS, kSizeSeals | more_seals) != 0 && !is_refused_call(errno)) {
    return fail_errno(errno, "seal", object);
  }
  return SharedMemory(std::move(fd), size_bytes);
}

Result<SharedMemory> SharedMemory::create(std::string_view debug_name, std::uint64_t size_bytes) {
  return make(debug_name, size_bytes, F_SEAL_SEAL);
}

Result<SharedMemory> SharedMemory::create_for_writing_once(std::string_view debug_name, std::uint64_t size_bytes) {
  return make(debug_name, size_bytes, 0);
}

Result<SharedMemory> SharedMemory::adopt(Descriptor descriptor, std::uint64_t max_bytes) {
  const auto refuse = [](ErrorKind kind, const std::string& reason) {
    return fail(kind, "adopt shared memory: " + reason);
  };
  struct ::stat info{};
  if (!descriptor.is_open() || ::fstat(descriptor.get(), &info) != 0) {
    return refuse(ErrorKind::invalid_argument, "it is no descriptor");
  }
  const int seals = S_ISREG(info.st_mode) ? ::fcntl(descriptor.get(), F_GET_SEALS) : -1;
  if (seals < 0) return refuse(ErrorKind::invalid_argument, "it is not anonymous memory");
  if (!is_size_sealed(descriptor.get()) && has_seals()) {
    return refuse(ErrorKind::invalid_argument, "its size is not sealed against shrinking and growing");
  }
  if (info.st_size <= 0) return refuse(ErrorKind::invalid_argument, "it is empty");
  const auto size_bytes = static_cast<std::uint64_t>(info.st_size);
  if (size_bytes > max_bytes) {
    return refuse(ErrorKind::resource_exhausted,
                  "it has " + std::to_string(size_bytes) + " bytes, expected at most " + std::to_string(max_bytes));
  }
  return SharedMemory(std::move(descriptor), size_bytes);
}

Result<void> SharedMemory::freeze() {
  if (is_frozen()) return {};
  if (!is_size_sealed(descriptor_.get())) {
    // Without seals, those who get the memory get a descriptor by which they cannot write.
    const std::string path = "/proc/self/fd/" + std::to_string(descriptor_.get());
    Descriptor reader = open_descriptor(path.c_str(), O_RDONLY);
    if (!reader.is_open()) return fail_errno(errno, "open for reading");
    descriptor_ = std::move(reader);
    return {};
  }
  if (::fcntl(descriptor_.get(), F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SEAL) == 0) return {};
  if (errno == EBUSY) return fail(ErrorKind::busy, "freeze shared memory: it is still mapped");
  if (errno == EPERM) {
    return fail(ErrorKind::invalid_argument, "freeze shared memory: it was not created for writing once");
  }
  return fail_errno(errno, "freeze");
}

bool SharedMemory::is_frozen() const noexcept {
  const int seals = ::fcntl(descriptor_.get(), F_GET_SEALS);
  if (seals >= 0 && (static_cast<unsigned>(seals) & F_SEAL_WRITE) != 0) return true;
  return !is_size_sealed(descriptor_.get()) && (::fcntl(descriptor_.get(), F_GETFL) & O_ACCMODE) == O_RDONLY;
}

Result<MappedMemory> SharedMemory::map(MemoryAccess access, std::uint64_t offset, std::uint64_t size_bytes) const {
  const std::string operation = std::string("map ") + (access == MemoryAccess::read ? "(read) " : "(read, write) ") +
                                std::to_string(size_bytes) + " bytes at offset " + std::to_string(offset) + " of";
  const auto refuse = [&](const std::string& reason) {
    return fail(ErrorKind::invalid_argument, operation + " shared memory: " + reason);
  };
  if (size_bytes == 0 || offset > size_bytes_ || size_bytes > size_bytes_ - offset) {
    return refuse("it has " + std::to_string(size_bytes_) + " bytes");
  }
  if (offset % page_size_bytes() != 0) {
    return refuse("expected an offset at a multiple of " + std::to_string(page_size_bytes()));
  }
  const bool frozen = is_frozen();
  if (frozen && access == MemoryAccess::read_write) return refuse("it is frozen");
  MappedMemory mapped;
  if (!can_populate_by_advice()) {
    mapped.descriptor_ = duplicate_descriptor(descriptor_.get());
    if (!mapped.descriptor_.is_open()) return fail_errno(errno, operation);
  }
  // Before Linux 6.7 every shared mapping counts as one for writing, which frozen memory refuses. A private mapping has
  // the same pages as long as no process writes.
  const int sharing = frozen ? MAP_PRIVATE : MAP_SHARED;
  const int protection = access == MemoryAccess::read ? PROT_READ : PROT_READ | PROT_WRITE;
  void* const address = ::mmap(nullptr, static_cast<std::size_t>(size_bytes), protection, sharing, descriptor_.get(),
                               static_cast<off_t>(offset));
  if (address == MAP_FAILED) return fail_errno(errno, operation);
  mapped.address_ = address;
  mapped.size_bytes_ = size_bytes;
  mapped.offset_ = offset;
  mapped.access_ = access;
  mapped.process_ = process_id();
  // Where the system refuses this, forked children inherit the mapping: it is not used there, but the memory stays
  // allocated as long as they live.
  if (::madvise(address, static_cast<std::size_t>(size_bytes), MADV_DONTFORK) != 0 && !is_refused_call(errno)) {
    return fail_errno(errno, "keep from forked children what is mapped of");
  }
  return mapped;
}

std::uint64_t SharedMemory::present_bytes() const noexcept {
  constexpr std::uint64_t kBlockBytes = 512;  // of st_blocks, whatever the system's block is
  struct ::stat status = {};
  if (::fstat(descriptor_.get(), &status) != 0 || status.st_blocks < 0) return size_bytes_;
  return std::min(size_bytes_, static_cast<std::uint64_t>(status.st_blocks) * kBlockBytes);
}

Result<void> SharedMemory::give_back(std::uint64_t offset, std::uint64_t size_bytes) const {
  if (size_bytes == 0) return {};
  constexpr int kMode = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
  if (::fallocate(descriptor_.get(), kMode, static_cast<::off_t>(offset), static_cast<::off_t>(size_bytes)) == 0) {
    return {};
  }
  return fail_errno(errno, "give back pages of");
}

Result<Descriptor> SharedMemory::duplicate() const {
  Descriptor copy = duplicate_descriptor(descriptor_.get());
  if (!copy.is_open()) return fail_errno(errno, "duplicate the descriptor of");
  return copy;
}

}  // namespace bitsnap::os
