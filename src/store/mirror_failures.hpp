// The steps of a run whose files cannot be read while the run is copied: which ones, why, and when to try again.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>

#include <bitsnap/error.hpp>

#include "os/file_system.hpp"
#include "store/mirror_order.hpp"
#include "store/run_layout.hpp"

namespace bitsnap::store {

// One thread at a time uses it. All that the constructor gets outlives it.
class MirrorFailures {
 public:
  MirrorFailures(os::FileSystem& from, const RunLayout& run) : from_(from), run_(run) {}

  // `name`: the file of the step that cannot be read.
  [[nodiscard]] Result<void> note(std::uint64_t step, const CommitRecord& record, const std::string& name, Error error);
  // Drops what may have passed: the record or the file has changed, or some minutes are over.
  [[nodiscard]] Result<void> forget(const MirroredSteps& wanted);
  // Whether the run, as it is `now`, has changed one of the steps.
  [[nodiscard]] bool are_outdated(const MirroredSteps& now) const;

  [[nodiscard]] bool is_empty() const noexcept { return steps_.empty(); }
  [[nodiscard]] std::set<std::uint64_t> steps() const;
  // Of the first step; `held_back`: the checkpoints that are missing for it or for the others. nullopt: there is none.
  [[nodiscard]] std::optional<Error> error(const std::string& copy, std::set<std::uint64_t> held_back) const;

 private:
  struct Failure {
    CommitRecord record;
    std::string path;
    os::FileInfo file;
    Error error;
    std::uint64_t at_ns = 0;
  };

  os::FileSystem& from_;
  const RunLayout& run_;
  std::map<std::uint64_t, Failure> steps_;
};

}  // namespace bitsnap::store
