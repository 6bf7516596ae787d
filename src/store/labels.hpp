// Labels: which checkpoint of a store each label names, and giving and removing labels. docs/spec/store.md, "Labels".
//
// A handle owns it. Any thread may call the const functions. The others are for the call that holds the write turn and
// the exclusive lock.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <bitsnap/store.hpp>

#include "store/commit_record.hpp"
#include "store/label_record.hpp"
#include "store/step_directories.hpp"

namespace bitsnap::store {

class Labels {
 public:
  // `directories` outlive this object.
  explicit Labels(StepDirectories& directories)
      : directories_(directories), file_system_(directories.file_system()), layout_(directories.layout()) {}

  // By label.
  [[nodiscard]] Result<std::vector<StepLabel>> all() const;
  [[nodiscard]] Result<std::uint64_t> find(const std::string& label) const;
  // Sets the labels of listed checkpoints. Leaves them empty if the labels cannot be read.
  static void note(std::vector<Checkpoint>& checkpoints, const Result<std::vector<StepLabel>>& labels);

  // Makes the labels name the step, which is a checkpoint.
  [[nodiscard]] Result<void> set(std::uint64_t step, const std::vector<std::string>& labels);
  [[nodiscard]] Result<void> remove(const std::string& label);
  // Runs before the commit record is written: the labels name the step from the moment when the record exists. Labels
  // that earlier checkpoints of this step had are dropped. Returns the labels of the step.
  [[nodiscard]] Result<std::vector<std::string>> give(const CommitRecord& record,
                                                      const std::vector<std::string>& labels);
  // Whether give() may change the record.
  [[nodiscard]] Result<bool> concerns(std::uint64_t step, const std::vector<std::string>& labels) const;
  // Runs before steps are removed: no label may name another step when its own is gone.
  [[nodiscard]] Result<void> settle();

 private:
  // The step that an entry names now; nullopt: none.
  [[nodiscard]] Result<std::optional<std::uint64_t>> step_of(const LabelEntry& entry) const;
  // The record with only those labels that name a checkpoint, each with its step alone.
  [[nodiscard]] Result<LabelRecord> settled(const LabelRecord& record) const;
  // Makes `next` the record of the labels, durably. `current` is what the record holds.
  [[nodiscard]] Result<void> change(const LabelRecord& current, const LabelRecord& next);

  StepDirectories& directories_;
  os::FileSystem& file_system_;
  const RunLayout& layout_;
};

}  // namespace bitsnap::store
