// Copies, on this machine, of what was read from objects, so that it is not downloaded twice: a training that goes on
// from a bucket needs the checkpoint that it has restored once more, as the base of its first save.
//
// DIRECTORY/OBJECT/OFFSET has the bytes that one read got from there on, and their checksum. OBJECT is a hash of the
// address and the version of the object, so that no copy is ever out of date. A copy that is damaged, or that could not
// be written, is one that is not there. If all together exceed the limit, those of the objects that were read longest
// ago go. Several processes may use one directory. Thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>

#include "base/bytes.hpp"
#include "os/file_system.hpp"

namespace bitsnap::objects {

class LocalCopies {
 public:
  LocalCopies(os::FileSystem& files, std::string directory, std::uint64_t most_bytes)
      : files_(files), directory_(std::move(directory)), most_bytes_(most_bytes) {}

  // The name of the copies of an object.
  [[nodiscard]] static std::string name_of(const std::string& address, const std::string& version);

  // Fills `out`, if the copies have all of these bytes.
  [[nodiscard]] bool read(const std::string& object, std::uint64_t offset, ByteSpan out);
  void keep(const std::string& object, std::uint64_t offset, ConstByteSpan bytes);

 private:
  using Ranges = std::map<std::uint64_t, std::uint64_t>;  // the sizes, by offset

  [[nodiscard]] std::string path_of(const std::string& object, std::uint64_t offset) const;
  [[nodiscard]] bool read_part(const std::string& object, std::uint64_t begin, std::uint64_t size, std::uint64_t offset,
                               ByteSpan out);
  [[nodiscard]] Result<void> write(const std::string& object, std::uint64_t offset, ConstByteSpan bytes);
  // The caller of these holds mutex_.
  Ranges& ranges_of(const std::string& object);
  void make_directory();
  void make_room(const std::string& object);

  os::FileSystem& files_;
  const std::string directory_;
  const std::uint64_t most_bytes_;
  std::mutex mutex_;                     // guards what follows
  std::map<std::string, Ranges> known_;  // of objects that were asked for, as far as this process knows
  std::uint64_t bytes_ = 0;              // of all copies, when they were counted, and of what was kept since
  std::uint64_t kept_ = 0;               // bytes, since then
  std::uint64_t written_ = 0;            // files, for temporary names
  int failures_ = 0;                     // to write one
  bool is_counted_ = false;
  bool is_off_ = false;  // nothing more is kept
};

}  // namespace bitsnap::objects
