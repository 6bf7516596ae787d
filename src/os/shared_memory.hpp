// Memory that processes share: anonymous, with no name anywhere, gone when the last who has it is gone.
//
// Its size is sealed, so that nobody can make it smaller under a mapping of somebody else, whom the next access would
// kill. The memory lives as long as one descriptor or mapping of it does, in whichever process: a forked child inherits
// descriptors, but no mapping. Who maps it and then drops the SharedMemory leaves nothing to the data loaders it forks.
//
// A system without memory left to give kills who touches a page that is not there yet; populate() says so instead. The
// limit of a control group is another matter: at that the system kills, so ask available_memory() first.
//
// To be used by one thread at a time, but for const functions. The bytes are the caller's to synchronize.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <bitsnap/error.hpp>

#include "base/bytes.hpp"
#include "os/descriptor.hpp"

namespace bitsnap::os {

enum class MemoryAccess : std::uint8_t { read, read_write };

// A part of a SharedMemory at an address of this process, until it is destroyed.
class MappedMemory {
 public:
  MappedMemory() noexcept = default;
  MappedMemory(MappedMemory&& other) noexcept;
  MappedMemory& operator=(MappedMemory&& other) noexcept;
  ~MappedMemory();

  // Empty in a child that was forked from the process that mapped it.
  [[nodiscard]] ConstByteSpan bytes() const noexcept;
  // Empty too where it was mapped for reading only.
  [[nodiscard]] ByteSpan writable_bytes() const noexcept;
  [[nodiscard]] std::uint64_t size_bytes() const noexcept { return size_bytes_; }

  // Makes all pages of the range present, and leaves what they hold: resource_exhausted where the system has none left.
  // Several threads may do it at once.
  [[nodiscard]] Result<void> populate(std::uint64_t offset, std::uint64_t size_bytes) const;

 private:
  friend class SharedMemory;

  void unmap() noexcept;
  [[nodiscard]] bool is_here() const noexcept;

  void* address_ = nullptr;
  std::uint64_t size_bytes_ = 0;
  std::uint64_t offset_ = 0;  // of the first byte, in the shared memory
  MemoryAccess access_ = MemoryAccess::read;
  std::int64_t process_ = 0;  // that has it
  Descriptor descriptor_;     // for populate(), where the system cannot do it by address
};

class SharedMemory {
 public:
  // Zeros, of a size that nobody can change. The name is shown by tools that list who has what open; any may be taken
  // any number of times. At most 200 bytes of it.
  [[nodiscard]] static Result<SharedMemory> create(std::string_view debug_name, std::uint64_t size_bytes);

  // The same, for what is written once and then handed out after freeze().
  [[nodiscard]] static Result<SharedMemory> create_for_writing_once(std::string_view debug_name,
                                                                    std::uint64_t size_bytes);

  // What another process handed over. Takes only what can be mapped without danger: memory of a sealed size
  // (invalid_argument otherwise) that is not above the limit (resource_exhausted).
  [[nodiscard]] static Result<SharedMemory> adopt(Descriptor descriptor, std::uint64_t max_bytes);

  // From now on nobody can change a byte. busy while somebody has it mapped for writing; before Linux 6.7, for reading.
  // invalid_argument for what create() made.
  [[nodiscard]] Result<void> freeze();
  [[nodiscard]] bool is_frozen() const noexcept;

  // All of it, or a range that begins at a multiple of the page size. Frozen memory is mapped for reading only.
  [[nodiscard]] Result<MappedMemory> map(MemoryAccess access) const { return map(access, 0, size_bytes_); }
  [[nodiscard]] Result<MappedMemory> map(MemoryAccess access, std::uint64_t offset, std::uint64_t size_bytes) const;

  [[nodiscard]] std::uint64_t size_bytes() const noexcept { return size_bytes_; }
  // To be sent to another process; stays owned by this object.
  [[nodiscard]] int descriptor() const noexcept { return descriptor_.get(); }
  [[nodiscard]] Result<Descriptor> duplicate() const;

 private:
  SharedMemory(Descriptor descriptor, std::uint64_t size_bytes) noexcept;

  [[nodiscard]] static Result<SharedMemory> make(std::string_view debug_name, std::uint64_t size_bytes,
                                                 unsigned more_seals);

  Descriptor descriptor_;
  std::uint64_t size_bytes_;
};

}  // namespace bitsnap::os
