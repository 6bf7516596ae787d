// The records of a store as structs, read and written: docs/spec/store.md, "Records". Reading checks one record alone;
// whether its files and references exist is not checked here.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <bitsnap/error.hpp>
#include <bitsnap/snapshot.hpp>
#include <bitsnap/store.hpp>

#include "os/file_system.hpp"
#include "store/run_layout.hpp"

namespace bitsnap::store {

// A snapshot of another step that a file is coded against.
struct StepReference {
  SnapshotId id;
  std::uint64_t step = 0;
  std::uint32_t shard = 0;
  bool standalone = false;  // the chunks that are referred to need no other snapshot

  friend bool operator==(const StepReference&, const StepReference&) = default;
};

// One file of a checkpoint.
struct ShardFile {
  std::string file;
  SnapshotId id;
  std::uint64_t bytes = 0;
  std::uint64_t raw_bytes = 0;
  std::uint32_t depth = 0;
  std::vector<StepReference> references;
  bool is_link = false;  // another name of the file of an equal shard of the same checkpoint, which counts the bytes

  friend bool operator==(const ShardFile&, const ShardFile&) = default;
};

// The part that commit records and shard records have in common.
struct CommitHeader {
  std::uint64_t step = 0;
  std::int64_t time_unix_ms = 0;
  std::string policy;
  std::string attempt;                // empty: none
  std::optional<std::uint64_t> base;  // nullopt: a keyframe
  std::uint32_t links = 0;
  bool directory_sync = true;
  // What a checkpoint coded against another one took when that was last seen, in 1/65536 of its raw bytes, and how many
  // checkpoints ago: the kept ones may all be standalone. nullopt: not known.
  std::optional<std::uint64_t> coded_share = {};
  std::optional<std::uint32_t> coded_age = {};
  std::vector<std::pair<std::string, double>> metrics = {};  // of the training, such as its loss

  friend bool operator==(const CommitHeader&, const CommitHeader&) = default;
};

struct CommitRecord : CommitHeader {
  std::vector<ShardFile> shards;
  std::vector<std::pair<std::string, std::string>> metadata;  // of the caller that committed
  // The caller's files, as tensors of a snapshot file that refers to no other; its metadata are those of the record. If
  // there are neither files nor metadata, there is no such file.
  std::optional<ShardFile> files = {};
  // How many tensors of the shards a repair could not read. If it is not 0, the checkpoint is kept as damaged: nothing
  // is coded against it, and it is never the newest one to resume from.
  std::uint64_t damaged_tensors = 0;

  // All files of the checkpoint: those of the shards, and then the one with the caller's files.
  // Precondition: number < file_count().
  [[nodiscard]] const ShardFile& file(std::size_t number) const noexcept {
    return number < shards.size() ? shards[number] : *files;
  }
  [[nodiscard]] std::size_t file_count() const noexcept { return shards.size() + (files ? 1 : 0); }

  friend bool operator==(const CommitRecord&, const CommitRecord&) = default;
};

// The part of one rank, before the checkpoint is committed.
struct ShardRecord : CommitHeader {
  std::uint32_t shard = 0;
  std::uint32_t shards = 0;
  ShardFile file;
};

// Of the store of a branch: from which checkpoint it was made.
struct RunOrigin {
  std::string id;      // of the store that had the checkpoint
  std::string branch;  // the name of that store, if it was a branch itself
  std::uint64_t step = 0;

  friend bool operator==(const RunOrigin&, const RunOrigin&) = default;
};

struct RunRecord {
  std::string id;
  std::optional<RunOrigin> origin = {};
  CodingSettings settings = default_settings();
};

// The metrics among the strings that a snapshot holds: "metrics.loss" with a number as text. Others are left out.
[[nodiscard]] std::vector<std::pair<std::string, double>> metrics_of(
    const std::vector<std::pair<std::string, std::string>>& metadata);

// Errors name the file. A record that breaks a rule of the document is corrupt, and so is a commit record of another
// step than `step`, the one of its directory. `retired`: reads retired.json.
[[nodiscard]] Result<CommitRecord> read_commit_record(os::FileSystem& file_system, const RunLayout& layout,
                                                      std::uint64_t step, bool retired = false);
[[nodiscard]] std::string serialize_commit_record(const CommitRecord& record);
// Makes the checkpoint exist; invalid_argument if it exists already. All write functions return whether the directory
// could be synced.
[[nodiscard]] Result<bool> write_commit_record(os::FileSystem& file_system, const RunLayout& layout,
                                               const CommitRecord& record);
// The same for the record of a checkpoint that is copied: it may have been coded against a later step since.
[[nodiscard]] Result<bool> copy_commit_record(os::FileSystem& file_system, const RunLayout& layout,
                                              const CommitRecord& record);
// Replaces an existing record.
[[nodiscard]] Result<bool> replace_commit_record(os::FileSystem& file_system, const RunLayout& layout,
                                                 const CommitRecord& record, bool retired);

[[nodiscard]] Result<ShardRecord> read_shard_record(os::FileSystem& file_system, const std::string& path);
[[nodiscard]] Result<bool> write_shard_record(os::FileSystem& file_system, const std::string& path,
                                              const ShardRecord& record);

[[nodiscard]] Result<RunRecord> read_run_record(os::FileSystem& file_system, const std::string& path);
[[nodiscard]] Result<bool> write_run_record(os::FileSystem& file_system, const std::string& path,
                                            const RunRecord& record, bool overwrite);

// Whether the error is about the data, not about the machine, the caller or the version. A repair acts on damage only.
[[nodiscard]] inline bool is_damage(const Error& error) noexcept {
  return error.kind() == ErrorKind::corrupt || error.kind() == ErrorKind::truncated ||
         error.kind() == ErrorKind::not_found;
}

// Whether a file refers to one of the steps.
[[nodiscard]] bool refers_to(const ShardFile& file, const std::set<std::uint64_t>& steps);
[[nodiscard]] bool refers_to(const CommitRecord& record, const std::set<std::uint64_t>& steps);

// The damage of a whole record.
[[nodiscard]] StoreDamage record_damage(std::uint64_t step, bool retired, Error error);

// The sum over all shards.
[[nodiscard]] std::uint64_t raw_bytes(const CommitRecord& record);
// The sum over all files. A file with several names counts once.
[[nodiscard]] std::uint64_t stored_bytes(const CommitRecord& record);
// Makes one of several equal shards count the bytes of their file, if all of them were written as links to others.
void settle_links(CommitRecord& record);
// The summary of a checkpoint for users; `record_bytes` is the size of its commit.json.
[[nodiscard]] Checkpoint checkpoint_info(const CommitRecord& record, std::uint64_t record_bytes);

// invalid_argument, with the reason, unless a shard may have this place.
[[nodiscard]] Result<void> check_place(const ShardPlace& place);

}  // namespace bitsnap::store
