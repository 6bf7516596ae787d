// The records of a copy that follows a run, which change one by one.
#pragma once

#include <cstdint>
#include <vector>

#include <bitsnap/error.hpp>

#include "os/file_system.hpp"
#include "store/mirror_order.hpp"
#include "store/mirror_records.hpp"
#include "store/run_layout.hpp"

namespace bitsnap::store {

// One thread at a time uses it, and nobody else changes the copy. All that the constructor gets outlives it.
class MirrorCopy {
 public:
  MirrorCopy(os::FileSystem& from, const RunLayout& run, os::FileSystem& to, const RunLayout& copy)
      : from_(from), run_(run), to_(to), copy_(copy), records_(to, copy) {}

  [[nodiscard]] Result<void> read();
  [[nodiscard]] const MirroredSteps& steps() const noexcept { return steps_; }
  // Steps whose records could not be read, ascending.
  [[nodiscard]] const std::vector<std::uint64_t>& unreadable() const noexcept { return records_.unreadable(); }
  [[nodiscard]] StepDirectories& directories() noexcept { return records_.directories(); }

  // Lets a step become what it is in `wanted`, whose files are there.
  [[nodiscard]] Result<void> change(std::uint64_t step, const MirroredSteps& wanted);

 private:
  void copy_tensor_index(std::uint64_t step);
  [[nodiscard]] Result<void> remove_unnamed(const CommitRecord& before, const CommitRecord& now);

  os::FileSystem& from_;
  const RunLayout& run_;
  os::FileSystem& to_;
  const RunLayout& copy_;
  MirrorRecords records_;
  MirroredSteps steps_;
};

}  // namespace bitsnap::store
