// RunLayout: the names and paths of the files of a store, docs/spec/store.md, "Names". Computes text only, and touches
// no file.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace bitsnap::store {

inline constexpr std::string_view kRunRecordName = "bitsnap.json";
inline constexpr std::string_view kLockName = "lock";
inline constexpr std::string_view kCatalogName = "catalog";
inline constexpr std::string_view kLabelsName = "labels.json";
inline constexpr std::string_view kCheckpointsName = "checkpoints";
inline constexpr std::string_view kDamagedName = "damaged";
inline constexpr std::string_view kBranchesName = "branches";
inline constexpr std::string_view kMirrorSourceName = "mirror-source.json";
inline constexpr std::string_view kMirrorIdName = "mirror-id.json";
inline constexpr std::string_view kCommitName = "commit.json";
inline constexpr std::string_view kRetiredName = "retired.json";
inline constexpr std::string_view kTensorsName = "tensors.json";

inline constexpr std::uint32_t kMaxShards = 99'999;
inline constexpr std::size_t kMaxAttemptBytes = 64;
inline constexpr std::size_t kMaxFileNameBytes = 200;

// "0000001000"
[[nodiscard]] std::string step_name(std::uint64_t step);
[[nodiscard]] std::optional<std::uint64_t> step_from_name(std::string_view name) noexcept;

// "shard-00000-of-00002.bsnap", "shard-00000-of-00002.ATTEMPT.bsnap"
[[nodiscard]] std::string shard_file_name(std::uint32_t shard, std::uint32_t shards, std::string_view attempt);
[[nodiscard]] std::string shard_record_name(std::uint32_t shard, std::uint32_t shards, std::string_view attempt);
// "files-0123456789abcdef.bsnap", "files-0123456789abcdef.ATTEMPT.bsnap": the caller's files, in a snapshot file whose
// bytes have this hash.
[[nodiscard]] std::string files_file_name(std::uint64_t hash, std::string_view attempt);
// The attempt in such a name, which may be empty; nullopt for other names.
[[nodiscard]] std::optional<std::string_view> attempt_of_files(std::string_view name) noexcept;
// The next name of a file that is rewritten: "a.bsnap" -> "a.r1.bsnap" -> "a.r2.bsnap".
[[nodiscard]] std::string rewritten_file_name(std::string_view name);
// The same with a random number, which no other writer draws.
[[nodiscard]] std::string drawn_file_name(std::string_view name);

// The name of the record of a committed or retired step.
[[nodiscard]] constexpr std::string_view record_file_name(bool retired) { return retired ? kRetiredName : kCommitName; }

// Whether a record may name this file.
[[nodiscard]] bool is_snapshot_file_name(std::string_view name) noexcept;
[[nodiscard]] bool is_attempt_name(std::string_view name) noexcept;

// Whether bitsnap may remove this file from a step's directory if no record names it.
[[nodiscard]] bool is_own_file_name(std::string_view name) noexcept;

// Whether a branch may have this name: 1 to 200 bytes of UTF-8 without control characters, '/', '\\', '@' and ':',
// which begins with neither a dot nor a dash and does not have digits alone.
[[nodiscard]] bool is_branch_name(std::string_view name) noexcept;

// The parts of a shard's file name.
struct ShardFileName {
  std::uint32_t shard = 0;
  std::uint32_t shards = 0;
  std::string attempt;          // empty: none
  std::uint32_t rewriting = 0;  // 0: as it was first written
};
[[nodiscard]] std::optional<ShardFileName> parse_shard_file_name(std::string_view name);

// The paths of one store.
class RunLayout {
 public:
  explicit RunLayout(std::string root) : root_(std::move(root)) {}

  [[nodiscard]] const std::string& root() const noexcept { return root_; }
  [[nodiscard]] std::string run_record() const { return in_root(kRunRecordName); }
  [[nodiscard]] std::string lock() const { return in_root(kLockName); }
  [[nodiscard]] std::string catalog() const { return in_root(kCatalogName); }
  [[nodiscard]] std::string labels() const { return in_root(kLabelsName); }
  [[nodiscard]] std::string checkpoints() const { return in_root(kCheckpointsName); }
  [[nodiscard]] std::string damaged() const { return in_root(kDamagedName); }
  [[nodiscard]] std::string branches() const { return in_root(kBranchesName); }
  [[nodiscard]] std::string step_directory(std::uint64_t step) const;
  [[nodiscard]] std::string commit(std::uint64_t step) const { return step_file(step, kCommitName); }
  [[nodiscard]] std::string retired(std::uint64_t step) const { return step_file(step, kRetiredName); }
  [[nodiscard]] std::string step_file(std::uint64_t step, std::string_view name) const;

  // "checkpoints/0000001000/NAME", for reports.
  [[nodiscard]] static std::string relative_file(std::uint64_t step, std::string_view name);

 private:
  [[nodiscard]] std::string in_root(std::string_view name) const;

  std::string root_;
};

}  // namespace bitsnap::store
