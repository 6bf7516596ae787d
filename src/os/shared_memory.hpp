// Anonymous memory that processes share by passing descriptors. It lives as long as one descriptor or mapping of it, in
// any process.
//
// The size is sealed, so that no process can shrink the memory under another one's mapping, whose next access would
// kill it. A forked child inherits descriptors, but no mappings: a trainer that maps the memory and drops the
// SharedMemory leaves nothing to the data loaders that it forks.
//
// Where the system refuses memfd_create() or seals, as containers may, the memory is an unnamed file in /dev/shm that
// no seals protect: that the other process does not shrink or change it is then a matter of trust.
//
// When the machine has no memory left, touching a page that is not present kills the process; populate() returns an
// error instead. At the limit of a control group the system kills in any case, so check available_memory() first.
//
// One thread at a time, except for const functions. Callers synchronize access to the bytes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <bitsnap/error.hpp>

#include "base/bytes.hpp"
#include "os/descriptor.hpp"

namespace bitsnap::os {

enum class MemoryAccess : std::uint8_t { read, read_write };

// A range of a SharedMemory, mapped into this process until the object is destroyed.
class MappedMemory {
 public:
  MappedMemory() noexcept = default;
  MappedMemory(MappedMemory&& other) noexcept;
  MappedMemory& operator=(MappedMemory&& other) noexcept;
  ~MappedMemory();

  // Empty in a forked child of the process that mapped it.
  [[nodiscard]] ConstByteSpan bytes() const noexcept;
  // Empty, too, if the memory is mapped for reading only.
  [[nodiscard]] ByteSpan writable_bytes() const noexcept;
  [[nodiscard]] std::uint64_t size_bytes() const noexcept { return size_bytes_; }

  // Makes all pages of the range present and keeps their contents; resource_exhausted if the system has no memory left.
  // Several threads may call it at once.
  [[nodiscard]] Result<void> populate(std::uint64_t offset, std::uint64_t size_bytes) const;
  // Asks for huge pages, of which populate() then takes fewer. Few systems provide them for shared memory.
  void prefer_huge_pages() const noexcept;

 private:
  friend class SharedMemory;

  void unmap() noexcept;
  [[nodiscard]] bool is_here() const noexcept;

  void* address_ = nullptr;
  std::uint64_t size_bytes_ = 0;
  std::uint64_t offset_ = 0;  // of the first byte, in the shared memory
  MemoryAccess access_ = MemoryAccess::read;
  std::int64_t process_ = 0;  // the process that mapped it
  Descriptor descriptor_;     // for populate(), if the system cannot do it by address
};

class SharedMemory {
 public:
  // Zeroed memory of a fixed size. Tools that list open files show the first 200 bytes of the name, which need not be
  // unique.
  [[nodiscard]] static Result<SharedMemory> create(std::string_view debug_name, std::uint64_t size_bytes);

  // The same for memory that is written once and passed on after freeze().
  [[nodiscard]] static Result<SharedMemory> create_for_writing_once(std::string_view debug_name,
                                                                    std::uint64_t size_bytes);

  // Memory that another process passed. Fails with invalid_argument unless its size is sealed, which makes mapping it
  // safe, or seals are refused here; and with resource_exhausted above `max_bytes`.
  [[nodiscard]] static Result<SharedMemory> adopt(Descriptor descriptor, std::uint64_t max_bytes);

  // From now on no process can change a byte. busy while a process has it mapped for writing (before Linux 6.7: or for
  // reading). invalid_argument for memory from create().
  [[nodiscard]] Result<void> freeze();
  [[nodiscard]] bool is_frozen() const noexcept;

  // Maps all of it, or a range that begins at a multiple of the page size. Frozen memory can only be mapped for
  // reading.
  [[nodiscard]] Result<MappedMemory> map(MemoryAccess access) const { return map(access, 0, size_bytes_); }
  [[nodiscard]] Result<MappedMemory> map(MemoryAccess access, std::uint64_t offset, std::uint64_t size_bytes) const;

  [[nodiscard]] std::uint64_t size_bytes() const noexcept { return size_bytes_; }
  // For passing to another process; this object keeps it.
  [[nodiscard]] int descriptor() const noexcept { return descriptor_.get(); }
  [[nodiscard]] Result<Descriptor> duplicate() const;

  // How many bytes have memory of the system; all of them if the system does not say.
  [[nodiscard]] std::uint64_t present_bytes() const noexcept;
  // Returns the memory of a range of whole pages to the system, for all processes: the range then reads as zeros.
  [[nodiscard]] Result<void> give_back(std::uint64_t offset, std::uint64_t size_bytes) const;

 private:
  SharedMemory(Descriptor descriptor, std::uint64_t size_bytes) noexcept;

  [[nodiscard]] static Result<SharedMemory> make(std::string_view debug_name, std::uint64_t size_bytes,
                                                 unsigned more_seals);

  Descriptor descriptor_;
  std::uint64_t size_bytes_;
};

}  // namespace bitsnap::os
