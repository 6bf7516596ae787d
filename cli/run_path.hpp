// RUN and RUN@STEP on the command line, and opening what they name. RUN is the directory of a store; without a step its
// newest checkpoint is meant.
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

// For arguments that may be files as well: nothing where `text` names no run. What exists under the whole name wins
// over reading it as RUN@STEP.
[[nodiscard]] Result<std::optional<RunPath>> find_run(const std::string& text);

// For arguments that can only be meant as RUN or RUN@STEP, whether they are there or not.
[[nodiscard]] Result<RunPath> parse_run_path(const std::string& text);

// Held before a file is opened that can be no run: invalid_argument where `text` names one, or a checkpoint of it, with
// the command that makes a file of that.
[[nodiscard]] Result<void> check_no_run(const std::string& text);

// For arguments that can only be meant as RUN: invalid_argument where one checkpoint of a run is named.
[[nodiscard]] Result<void> check_whole_run(const std::string& text);

// "run@20"
[[nodiscard]] std::string checkpoint_name(const std::string& run, std::uint64_t step);

// The same directory with a name for its last part, which "." and "run/" lack.
[[nodiscard]] std::filesystem::path run_folder(const std::string& run);
// That last part.
[[nodiscard]] std::string run_name(const std::string& run);

// One shard of a checkpoint, open.
struct OpenCheckpoint {
  std::string run;
  CheckpointInfo info;
  std::uint32_t shard = 0;
  std::shared_ptr<const Snapshot> snapshot;
};

// invalid_argument where the checkpoint has several shards and none was chosen: none of them is the checkpoint.
[[nodiscard]] Result<OpenCheckpoint> open_checkpoint(const RunPath& path, std::optional<std::uint64_t> shard);

// To read; never makes a store. Here and below `run` is no checkpoint: check_whole_run().
[[nodiscard]] Result<std::unique_ptr<Store>> open_to_read(const std::string& run);

// To write. Waits for another writer as long as stated, and stops waiting at an interrupt.
[[nodiscard]] Result<std::unique_ptr<Store>> open_to_write(const std::string& run, StoreOptions options,
                                                           std::chrono::milliseconds wait);

// Of an error that says who holds the lock of a run: who writes, and what is to be done. Others stay as they are.
[[nodiscard]] Error explain_busy(const std::string& run, Error error, std::string_view advice);

// Held before a file is read or written on behalf of a run: invalid_argument if `path` lies in its directory, where
// what belongs to no checkpoint may be removed by whoever writes to it.
[[nodiscard]] Result<void> check_outside(const std::string& run, const std::string& path);

}  // namespace bitsnap::cli
