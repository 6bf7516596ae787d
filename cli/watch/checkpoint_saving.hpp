// Saving what a training wrote as the next checkpoint of a run, and the report about it: shared by `add`, `ingest` and
// `watch`.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include <bitsnap/error.hpp>
#include <bitsnap/folder.hpp>
#include <bitsnap/store.hpp>

#include "cli/coding_options.hpp"
#include "cli/command.hpp"

namespace bitsnap::cli {

struct RunSaveOptions {
  std::string run;
  CodingOptions coding;  // settings that are not given are those of the run
  Retention retention;
  std::chrono::milliseconds wait{0};
};

// The options of coding, --keep-last, --keep-every and --wait. `options` must outlive the parsing.
void add_save_options(CLI::App& app, RunSaveOptions& options);

// For commands that save several checkpoints: invalid_argument if --adam-step is given, which is another number for
// each of them.
[[nodiscard]] Result<void> check_many(const RunSaveOptions& options);

// The steps of the run; none if the run does not exist, or if its creation was interrupted, which open_to_save()
// continues.
[[nodiscard]] Result<std::vector<std::uint64_t>> steps_of_run(const std::string& run);

// Opens the run for writing, and makes it if it is not there.
[[nodiscard]] Result<std::unique_ptr<Store>> open_to_save(const RunSaveOptions& options);

// Gives the tensors Adam's numbers, and prints warnings unless --quiet is given. `adam_step` stands in for --adam-step.
[[nodiscard]] Result<void> prepare_input(FolderState& input, const RunSaveOptions& options,
                                         std::optional<std::uint64_t> adam_step, const CommonOptions& common);

struct SavedCheckpoint {
  std::string input;
  std::uint64_t input_bytes = 0;
  double seconds = 0;
  CodingSettings settings;
  bool durable = true;
  Checkpoint checkpoint;
};

// What `save` saves, measured. `path` and `input_bytes` are those of what the user named.
using SaveCheckpoint = std::function<Result<Checkpoint>(const RunOptions& run)>;
[[nodiscard]] Result<SavedCheckpoint> save_measured(Store& store, const std::string& path, std::uint64_t input_bytes,
                                                    const CommonOptions& common, const SaveCheckpoint& save);

// Saves an input that was opened at `path`. Before the commit, everything is decoded and compared (check_written()),
// and then `check` is called if it is given; the step is not committed after its error.
[[nodiscard]] Result<SavedCheckpoint> save_input(Store& store, const FolderState& input, const std::string& path,
                                                 std::uint64_t step, const CommonOptions& common,
                                                 const std::function<Result<void>()>& check = nullptr,
                                                 const std::vector<std::string>& labels = {});

// Warns if an earlier checkpoint is damaged, so that this one is a keyframe and takes more space.
void warn_of_base(const std::string& run, const SavedCheckpoint& saved, const CommonOptions& common);

[[nodiscard]] Json saved_json(const std::string& run, const SavedCheckpoint& saved);
// The report for people, with -v about what the store holds.
[[nodiscard]] Result<void> print_saved(const Store& store, const std::string& run, const SavedCheckpoint& saved,
                                       const CommonOptions& common);

}  // namespace bitsnap::cli
