// The record of a store's labels, `labels.json`: docs/spec/store.md, "Labels". Reads and writes the record alone;
// whether its steps are checkpoints is not checked here.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <bitsnap/error.hpp>
#include <bitsnap/snapshot.hpp>

#include "os/file_system.hpp"
#include "store/run_layout.hpp"

namespace bitsnap::store {

inline constexpr std::size_t kMaxLabelBytes = 255;
// Bounds what every labelled save writes.
inline constexpr std::size_t kMaxLabels = 100'000;

struct LabelEntry {
  // Of a label that was given together with a commit: which commit, and what the label names without it.
  struct Pending {
    SnapshotId id;                        // of the first shard
    std::optional<std::uint64_t> before;  // the step that it named before

    friend bool operator==(const Pending&, const Pending&) = default;
  };
  std::string label;
  std::uint64_t step = 0;
  std::optional<Pending> pending;

  friend bool operator==(const LabelEntry&, const LabelEntry&) = default;
};

struct LabelRecord {
  std::vector<LabelEntry> labels;  // by label

  // nullptr if there is no such label.
  [[nodiscard]] const LabelEntry* find(std::string_view label) const noexcept;
  // Makes the label name the entry's step alone.
  void set(LabelEntry entry);
  // Whether a label names the step, or named it before.
  [[nodiscard]] bool mentions(std::uint64_t step) const noexcept;

  friend bool operator==(const LabelRecord&, const LabelRecord&) = default;
};

// 1 to 255 bytes of UTF-8 without control characters.
[[nodiscard]] bool is_label(std::string_view label) noexcept;
// invalid_argument, with the reason, unless all are labels.
[[nodiscard]] Result<void> check_labels(const std::vector<std::string>& labels);
// The same for labels that a checkpoint gets. Digits alone are refused, because RUN@20 is step 20 in all commands, and
// so are spaces alone. Stores may have such labels from before.
[[nodiscard]] Result<void> check_new_labels(const std::vector<std::string>& labels);

// A store without labels has no such record: then the result is empty.
[[nodiscard]] Result<LabelRecord> read_label_record(os::FileSystem& file_system, const RunLayout& layout);
// Replaces the record. Returns whether the directory could be synced. invalid_argument for too many labels.
[[nodiscard]] Result<bool> write_label_record(os::FileSystem& file_system, const RunLayout& layout,
                                              const LabelRecord& record);

// "; similar labels are 'a' and 'b'", or nothing if none is similar.
[[nodiscard]] std::string similar_labels(const std::vector<std::string>& labels, std::string_view label);

}  // namespace bitsnap::store
