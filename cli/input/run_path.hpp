// RUN, RUN@STEP and RUN@LABEL on the command line, and opening them. RUN is the directory of a store; without a step it
// means the newest checkpoint. RUN@latest and RUN@-1 mean the newest one, RUN@-2 the one before, unless these are
// labels. RUN may be RUN:NAME, a branch of a run.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include <bitsnap/error.hpp>
#include <bitsnap/snapshot.hpp>
#include <bitsnap/store.hpp>

namespace bitsnap::cli {

struct RunPath {
  std::string run;
  std::optional<std::uint64_t> step;
};

// For arguments that may also be files: returns nullopt if `text` names no run. A path that exists under the whole name
// wins over RUN@STEP. A reference, or a folder with one, names the checkpoint to which it leads. not_found if no
// checkpoint has the label, or if a reference leads to none.
[[nodiscard]] Result<std::optional<RunPath>> find_run(const std::string& text);

// not_found, with a similar name beside it, if nothing is at the path, except a URL.
[[nodiscard]] Result<void> check_is_there(const std::string& text);

// find_run(), and check_is_there() if `text` names no run.
[[nodiscard]] Result<std::optional<RunPath>> find_run_or_file(const std::string& text);

// For arguments that can only mean RUN or RUN@STEP, whether it exists or not.
[[nodiscard]] Result<RunPath> parse_run_path(const std::string& text);

// For arguments that must be files: fails with invalid_argument if `text` names a run or a checkpoint, and names the
// command that converts it to a file.
[[nodiscard]] Result<void> check_no_run(const std::string& text);

// For arguments that must be RUN: fails with invalid_argument if `text` names one checkpoint.
[[nodiscard]] Result<void> check_whole_run(const std::string& text);

// "run@20"
[[nodiscard]] std::string checkpoint_name(const std::string& run, std::uint64_t step);

// The same directory as a path whose last part is a name, unlike "." and "run/"; for the branch NAME of RUN, RUN-NAME,
// a path beside the run; for one in an object store, a path in the working directory.
[[nodiscard]] std::filesystem::path run_folder(const std::string& run);
// The last part of run_folder().
[[nodiscard]] std::string run_name(const std::string& run);
// The directory of the run whose branch this is, or of the run itself.
[[nodiscard]] std::string run_of_branch(const std::string& run);

// One shard of a checkpoint, open.
struct OpenCheckpoint {
  std::string run;
  Checkpoint info;
  std::uint32_t shard = 0;
  std::shared_ptr<const Snapshot> snapshot;
};

// The newest checkpoint that is not kept as damaged; not_found if there is none.
[[nodiscard]] Result<std::uint64_t> newest_step(const Store& store, const std::string& run);

// Fails with invalid_argument if the checkpoint has several shards and `shard` is nullopt. `partial`: as in
// Store::snapshot().
[[nodiscard]] Result<OpenCheckpoint> open_checkpoint(const RunPath& path, std::optional<std::uint64_t> shard,
                                                     bool partial = false);

// Opens a store for reading; never creates one. Fails if `run` names a checkpoint, as does open_to_write().
[[nodiscard]] Result<std::unique_ptr<Store>> open_to_read(const std::string& run);

// Opens a store for writing. Waits up to `wait` for another writer; an interrupt ends the wait.
[[nodiscard]] Result<std::unique_ptr<Store>> open_to_write(const std::string& run, StoreOptions options,
                                                           std::chrono::milliseconds wait);

// Turns an error about the lock of a run into a message with the writer's process and an advice. Other errors stay as
// they are.
[[nodiscard]] Error explain_busy(const std::string& run, Error error, std::string_view advice);

// Fails with invalid_argument if `path` is a run or lies in one: what is there belongs to the run.
[[nodiscard]] Result<void> check_in_no_run(const std::string& path);

// Fails with invalid_argument if the file `path` lies in the directory of the run, where writers remove files that
// belong to no checkpoint.
[[nodiscard]] Result<void> check_outside(const std::string& run, const std::string& path);

}  // namespace bitsnap::cli
