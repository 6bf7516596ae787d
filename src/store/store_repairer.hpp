// Store::Impl::Repairer: one repair of a store. store_repair_records.cpp rebuilds records; store_repair.cpp finds
// damage, and does what is to be done about it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "store/kept_damage.hpp"
#include "store/store_impl.hpp"

namespace bitsnap {

// One repair. It rebuilds records first, from the oldest on, because a record is rebuilt with the records before it.
class Store::Impl::Repairer {
 public:
  Repairer(Impl& store, const RepairOptions& options) : store_(store), options_(options) {}

  Result<RepairReport> run();

 private:
  Result<void> mend_run_record();
  Result<void> mend_labels();
  // Takes the caller's files out of the records if they are damaged: the state is whole without them.
  Result<void> mend_files();
  Result<std::optional<Policy>> newest_policy();
  Result<void> mend_records();
  Result<void> mend_records_once();
  Result<void> mend_record(std::uint64_t step, store::KnownStep& known);
  // Rebuilds the record of a step that has none. Returns whether the files of the step form a checkpoint.
  Result<bool> mend_missing(std::uint64_t step, store::KnownStep& known, const std::string& why);
  // All steps but this one, first the earlier ones from the newest on, then the later ones.
  [[nodiscard]] std::vector<std::uint64_t> others(std::uint64_t step) const;
  // The place of the snapshot `id`, to which step `by` refers, in another step.
  std::optional<store::StepReference> find(const SnapshotId& id, std::uint64_t by);
  // Like find(), but searches steps without a record, and gives the step that it finds a new record. That step may have
  // been pruned, with some files left: this cannot be told from a lost record.
  std::optional<store::StepReference> find_uncommitted(const SnapshotId& id, std::uint64_t by);
  Result<void> replace_record(std::uint64_t step, store::KnownStep& known, store::CommitRecord record,
                              const std::string& why);
  Result<void> write_record(store::KnownStep& known, store::CommitRecord record);
  // Rebuilds a record from the files of the step. If `gone` is given, a base that is not found counts as part of step
  // `gone`, which is missing.
  Result<store::CommitRecord> rebuild(std::uint64_t step, std::optional<std::uint64_t> gone = std::nullopt);
  [[nodiscard]] std::optional<std::uint64_t> missing_step_below(std::uint64_t step) const;
  // Rebuilds a record. If the step has no record, `state` becomes committed if all bases are found, otherwise retired.
  Result<store::CommitRecord> rebuild_as(std::uint64_t step, store::StepState& state);
  Result<void> mend_newest();
  // Notes the steps without a record that may be checkpoints, so that they are set aside instead of removed.
  void note_unclear();
  Result<void> find_damages();
  // Chooses which damaged steps stay.
  Result<void> choose_kept();
  Result<void> rewrite_what_is_whole();
  // Writes into the records which checkpoints are damaged.
  Result<void> mark_damaged();
  Result<void> set_aside(std::uint64_t step, std::vector<StoreDamage> damages);
  Result<void> set_aside_what_is_not();

  Impl& store_;
  const RepairOptions& options_;
  RepairReport report_;
  std::optional<Error> failure_;                               // of find(), which cannot return an error
  std::set<std::uint64_t> beyond_rebuilding_;                  // steps without a record that cannot be rebuilt
  bool takes_gone_bases_ = false;                              // also for records of checkpoints
  std::set<std::uint64_t> found_again_;                        // steps that had no record until now
  std::set<std::uint64_t> unclear_;                            // steps without a record that may be checkpoints
  std::map<std::uint64_t, std::vector<StoreDamage>> damages_;  // by step
  std::map<std::uint64_t, store::Readable> kept_;              // the damaged steps that stay
};

}  // namespace bitsnap
