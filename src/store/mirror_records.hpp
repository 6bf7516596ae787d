// The records of a run that is copied again and again: only those are read that have changed since.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include <bitsnap/error.hpp>

#include "os/file_system.hpp"
#include "store/mirror_order.hpp"
#include "store/step_directories.hpp"

namespace bitsnap::store {

// Whether a file is still the one that it was.
[[nodiscard]] bool is_unchanged(const os::FileInfo& a, const os::FileInfo& b);

// One thread at a time uses it.
class MirrorRecords {
 public:
  // `files` outlive this object.
  MirrorRecords(os::FileSystem& files, RunLayout layout) : directories_(files, std::move(layout)) {}

  // The checkpoints and retired steps as they are now, without those of unreadable().
  [[nodiscard]] Result<MirroredSteps> read();
  // The steps whose records could not be read, ascending: they are damaged, or were removed meanwhile.
  [[nodiscard]] const std::vector<std::uint64_t>& unreadable() const noexcept { return unreadable_; }

  // The steps with files and no record, ascending: a save or removal has not ended, or the record is lost.
  [[nodiscard]] const std::vector<std::uint64_t>& without_record() const noexcept { return without_record_; }

  [[nodiscard]] StepDirectories& directories() noexcept { return directories_; }
  [[nodiscard]] const StepDirectories& directories() const noexcept { return directories_; }

 private:
  struct Known {
    os::FileInfo file;
    MirroredStep step;
  };

  StepDirectories directories_;
  std::map<std::uint64_t, Known> known_;
  std::vector<std::uint64_t> unreadable_;
  std::vector<std::uint64_t> without_record_;
};

}  // namespace bitsnap::store
