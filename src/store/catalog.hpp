// The cache of commit records that makes listing many of them fast: docs/spec/store.md, "catalog".
//
// Nothing depends on it: an entry counts only if it is about the very file that is there, and a catalog that is
// missing, short or damaged is an empty one.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <bitsnap/store.hpp>

#include "os/file_system.hpp"
#include "store/step_directories.hpp"

namespace bitsnap::store {

class Catalog {
 public:
  [[nodiscard]] static Catalog read(os::FileSystem& file_system, const std::string& path);

  // What is known of the checkpoint whose record was looked at; nullptr if that has to be read.
  [[nodiscard]] const Checkpoint* find(const StepEntry& entry) const noexcept;

  // In the order of steps.
  void add(const StepEntry& entry, const Checkpoint& info);
  [[nodiscard]] std::size_t size() const noexcept { return entries_.size(); }

  // Replaces the file; without syncs.
  [[nodiscard]] Result<void> write(os::FileSystem& file_system, const std::string& path) const;

 private:
  struct Entry {
    std::int64_t modified_ns = 0;
    std::uint64_t file_id = 0;
    std::uint64_t record_bytes = 0;
    Checkpoint info;
  };
  std::vector<Entry> entries_;
};

// Lists all checkpoints and writes the catalog of them. Records that were written within the last second are left out:
// one that replaces them could look the same.
[[nodiscard]] Result<void> write_catalog(const StepDirectories& directories);

}  // namespace bitsnap::store
