// In which order the records of a copy of a run become those of the run, so that at every moment each checkpoint of the
// copy finds what it refers to. A pure function of the records; it touches no file.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "store/commit_record.hpp"

namespace bitsnap::store {

struct MirroredStep {
  CommitRecord record;
  bool is_retired = false;

  friend bool operator==(const MirroredStep&, const MirroredStep&) = default;
};

using MirroredSteps = std::map<std::uint64_t, MirroredStep>;

[[nodiscard]] bool has_file(const CommitRecord& record, const ShardFile& file);
[[nodiscard]] bool has_name(const CommitRecord& record, const std::string& name);
// Whether both are of one save. A step may be saved again after a rollback: its files then have the same names.
[[nodiscard]] bool is_same_save(const CommitRecord& a, const CommitRecord& b);
// The newest checkpoint.
[[nodiscard]] std::optional<std::uint64_t> newest_of(const MirroredSteps& steps);

// The steps that differ, each once: one that `wanted` has becomes what it is there, any other is removed. The files of
// a step are in the copy before its record changes. Steps of one group wait for each other: the files of all come
// before the first of their records.
using MirrorOrder = std::vector<std::vector<std::uint64_t>>;
[[nodiscard]] MirrorOrder mirror_order(MirroredSteps copy, const MirroredSteps& wanted);

// What the copy can become if the steps `held` cannot change: these stay as they are in the copy, and so do those that
// need what is new in them, and those that they need; all of them are added to `held`. If the newest checkpoint of
// `wanted` is among them, no checkpoint is removed.
[[nodiscard]] MirroredSteps hold_back(const MirroredSteps& copy, const MirroredSteps& wanted,
                                      std::set<std::uint64_t>& held);

// Adds what the steps need of `all`, and what that needs.
void add_needed(MirroredSteps& steps, const MirroredSteps& all);

}  // namespace bitsnap::store
