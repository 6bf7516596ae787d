// LocalCopies keeps on this machine what was read from objects, so that nothing is downloaded twice. A training that
// goes on from a bucket reads its checkpoint once to restore it, and once more as the base of its first save.
//
// DIRECTORY/OBJECT/OFFSET has the bytes that one read got from there on, and their checksum. OBJECT is a hash of the
// address and the version of the object, so that no copy is ever out of date. A copy that is damaged, or that could not
// be written, is one that is not there. If all together exceed the limit, those of the objects that were kept longest
// ago go; other files in the directory are left alone. Several processes may use one directory. Thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include <bitsnap/error.hpp>

#include "base/bytes.hpp"
#include "os/file_system.hpp"

namespace bitsnap::objects {

class LocalCopies {
 public:
  // `directory`: absolute; made with all above it when something is kept.
  LocalCopies(os::FileSystem& files, std::string directory, std::uint64_t most_bytes);

  // The name of the copies of an object.
  [[nodiscard]] static std::string name_of(const std::string& address, const std::string& version);

  // Fills `out`, if the copies have all of these bytes.
  [[nodiscard]] bool read(const std::string& object, std::uint64_t offset, ByteSpan out);
  void keep(const std::string& object, std::uint64_t offset, ConstByteSpan bytes);

 private:
  struct Known {
    std::map<std::uint64_t, std::uint64_t> ranges;  // the sizes, by offset
    std::int64_t listed_ns = -1;                    // the time of change of the directory that was listed
    bool has_own = false;                           // this process keeps copies of the object
  };
  struct Part {
    std::uint64_t begin;
    std::uint64_t size;
  };

  [[nodiscard]] std::string path_of(const std::string& object, std::uint64_t offset) const;
  [[nodiscard]] bool read_part(const std::string& object, std::uint64_t begin, std::uint64_t size, std::uint64_t offset,
                               ByteSpan out);
  [[nodiscard]] Result<void> write(const std::string& object, std::uint64_t offset, ConstByteSpan bytes);
  // The caller of these holds mutex_.
  Known& known_of(const std::string& object);
  // The copies that have all of these bytes; empty: there are none.
  [[nodiscard]] std::vector<Part> parts_of(const std::string& object, std::uint64_t offset, std::uint64_t size);
  void make_directory();
  void make_room(const std::string& object);

  os::FileSystem& files_;
  const std::string directory_;
  const std::uint64_t most_bytes_;
  std::mutex mutex_;                    // guards what follows
  std::map<std::string, Known> known_;  // objects that were asked for, as far as this process knows
  std::uint64_t bytes_ = 0;             // all copies had this many at the last count, or this process has added to them
  std::uint64_t kept_ = 0;              // this process has added this many since the last count
  const std::uint64_t nonce_;           // of this process, in temporary names
  std::uint64_t written_ = 0;           // files, likewise
  int failures_ = 0;                    // to write one
  bool is_counted_ = false;
  bool is_off_ = false;  // nothing more is kept
};

}  // namespace bitsnap::objects
