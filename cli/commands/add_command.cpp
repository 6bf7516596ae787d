// `bitsnap add`: saves a folder or a file as the next checkpoint of a run, and prunes the run if a --keep option is
// given. A reference, or the folder of one, stands for the checkpoint to which it leads, which is copied from its run.
#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <bitsnap/error.hpp>
#include <bitsnap/snapshot.hpp>
#include <bitsnap/store.hpp>
#include <bitsnap/text.hpp>

#include "cli/command.hpp"
#include "cli/file_paths.hpp"
#include "cli/input/checkpoint_input.hpp"
#include "cli/input/references.hpp"
#include "cli/input/run_path.hpp"
#include "cli/number_option.hpp"
#include "cli/operating_system.hpp"
#include "cli/text_format.hpp"
#include "cli/watch/checkpoint_saving.hpp"
#include "src/base/try.hpp"

namespace bitsnap::cli {

namespace {

// A checkpoint that is open to be copied.
struct CopySource {
  RunPath from;
  Checkpoint info;
  std::vector<State> shards;  // read from the run when the save needs them
  std::vector<CheckpointFile> files;
};

Result<State> state_of(const std::shared_ptr<const Snapshot>& snapshot) {
  State state;
  for (std::size_t i = 0; i < snapshot->tensors().size(); ++i) {
    TensorSource source;
    source.info = snapshot->tensors()[i];
    source.read = [snapshot, i](std::uint64_t offset, std::span<std::byte> out) {
      return snapshot->read_bytes(i, offset, out);
    };
    state.tensors.push_back(std::move(source));
  }
  BITSNAP_ASSIGN(state.tree, snapshot->tree());
  state.metadata = without_saved_path(snapshot->metadata());
  state.safetensors_header = snapshot->safetensors_header();
  return state;
}

std::string new_attempt() { return fmt::format("copy-{:016x}", random_number()); }

Result<Checkpoint> save_one(Store& store, const CopySource& source, std::uint64_t step, const RunOptions& run,
                            const std::vector<std::string>& labels) {
  const auto check = [&](const Snapshot& written) {
    return check_decodes(written, run.threads).map_error([&](const Error& error) {
      return Error(error).within(written.name() + ": it was not written as it was read");
    });
  };
  return store.save(step, source.shards.front(), run, check, {.labels = labels, .files = source.files});
}

Result<Checkpoint> save_several(Store& store, const CopySource& source, std::uint64_t step, const RunOptions& run,
                                const std::vector<std::string>& labels) {
  const auto count = static_cast<std::uint32_t>(source.shards.size());
  const std::string attempt = new_attempt();
  for (std::uint32_t shard = 0; shard < count; ++shard) {
    BITSNAP_TRY(store.save_shard(step, {shard, count, attempt}, source.shards[shard], run));
  }
  BITSNAP_ASSIGN(
      CommitOutcome outcome,
      store.commit(step, count, attempt,
                   {.labels = labels, .metadata = without_saved_path(source.info.metadata), .files = source.files}));
  if (!outcome) return fail(ErrorKind::io, fmt::format("{}: shards of step {} are missing", store.path(), step));
  BITSNAP_ASSIGN(const StoreVerification verified, store.verify({.steps = {step}, .run = {run.threads, nullptr}}));
  if (!verified.damages.empty()) return tl::unexpected(verified.damages.front().error);
  return *std::move(outcome.checkpoint);
}

// Opens all shards of a checkpoint. `from` has a step.
Result<CopySource> open_copy(const RunPath& from) {
  BITSNAP_ASSIGN(const auto store, open_to_read(from.run));
  CopySource source{from, {}, {}, {}};
  BITSNAP_ASSIGN(source.info, store->checkpoint(*from.step));
  if (source.info.damage) return tl::unexpected(*source.info.damage);
  for (std::uint32_t shard = 0; shard < source.info.shards; ++shard) {
    BITSNAP_ASSIGN(const auto snapshot, store->snapshot(from.step, shard));
    BITSNAP_ASSIGN(State state, state_of(snapshot));
    source.shards.push_back(std::move(state));
  }
  BITSNAP_ASSIGN(source.files, store->files(*from.step));
  return source;
}

// Saves what was opened as step `step`. Everything is decoded again: that of one shard before the step is committed,
// that of several shards afterwards. `path` is what the user named.
Result<SavedCheckpoint> save_copy(Store& store, const CopySource& source, const std::string& path, std::uint64_t step,
                                  const CommonOptions& common, const std::vector<std::string>& labels) {
  return save_measured(store, path, source.info.raw_bytes, common, [&](const RunOptions& run) {
    return source.shards.size() == 1 ? save_one(store, source, step, run, labels)
                                     : save_several(store, source, step, run, labels);
  });
}

struct AddOptions {
  RunSaveOptions save;
  std::string input;
  std::optional<std::uint64_t> step;
  std::vector<std::string> labels;
};

// The checkpoint to which a reference leads; nullopt: the input is none, or damaged, which open_input() explains.
Result<std::optional<RunPath>> find_referenced(const std::string& input) {
  if (is_store(input)) return std::optional<RunPath>();
  BITSNAP_ASSIGN(const auto reference, read_reference(input));
  return reference && !reference->saves.empty() ? find_run(input) : std::optional<RunPath>();
}

// What lies beside a reference, such as a model that the framework itself has written, is not in the run.
Result<void> note_other_files(const std::string& input) {
  std::error_code error;
  if (!std::filesystem::is_directory(input, error)) return {};
  BITSNAP_ASSIGN(const std::uint64_t others, count_other_files(input));
  if (others > 0) {
    print_note(fmt::format("{}: {} beside the reference are not in its run, and are not stored\n", printable(input),
                           format_plural(others, "other file")));
  }
  return {};
}

Result<SavedCheckpoint> save_referenced(Store& store, CopySource source, const AddOptions& options,
                                        const CommonOptions& common) {
  BITSNAP_ASSIGN(const auto adam, adam_of(options.save.coding.adam));
  for (State& shard : source.shards) {
    for (TensorSource& tensor : shard.tensors) tensor.adam = adam;
    if (!common.quiet) warn_of_idle_rules(options.save.coding.settings, shard);
  }
  BITSNAP_ASSIGN(auto saved, save_copy(store, source, options.input, *options.step, common, options.labels));
  if (!common.quiet) BITSNAP_TRY(note_other_files(options.input));
  return saved;
}

Result<int> add(const AddOptions& options, const CommonOptions& common) {
  BITSNAP_TRY(check_whole_run(options.save.run));
  BITSNAP_TRY(check_is_there(options.input));
  BITSNAP_ASSIGN(const auto referenced, find_referenced(options.input));
  std::optional<FolderState> input;
  std::optional<CopySource> source;
  if (referenced) {
    BITSNAP_ASSIGN(source, open_copy(*referenced));
  } else {
    BITSNAP_ASSIGN(input, open_input(options.input, "add", options.step));
  }
  BITSNAP_TRY(check_not_within(options.save.run, options.input));
  BITSNAP_TRY(check_outside(options.save.run, options.input));
  if (input) BITSNAP_TRY(prepare_input(*input, options.save, std::nullopt, common));
  BITSNAP_ASSIGN(auto store, open_to_save(options.save));
  BITSNAP_ASSIGN(const auto saved,
                 source ? save_referenced(*store, *std::move(source), options, common)
                        : save_input(*store, *input, options.input, *options.step, common, {}, options.labels));
  warn_of_base(options.save.run, saved, common);
  if (saved.checkpoint.prune_error) return tl::unexpected(*saved.checkpoint.prune_error);
  if (common.json) {
    print_json(saved_json(options.save.run, saved));
  } else if (!common.quiet) {
    BITSNAP_TRY(print_saved(*store, options.save.run, saved, common));
  }
  return kExitOk;
}

}  // namespace

Command add_add(CLI::App& program, const CommonOptions& common) {
  auto [app, options] =
      new_command<AddOptions>(program, kRunsGroup, "add", "Save a folder or a file as the next checkpoint of a run");
  add_argument(*app, "RUN", options->save.run, "The directory of the run; made if it is not there");
  add_argument(*app, "IN", options->input, "The folder or file, as the training wrote it, or a reference");
  add_number_option(*app, "--step", options->step, 0, "The step it was saved at, above all steps of the run")
      ->required();
  app->add_option("--label", options->labels, "A label that the checkpoint gets; may be given several times")
      ->type_name("NAME")
      ->expected(1)
      ->take_all();
  add_save_options(*app, options->save);
  app->footer(
      "Any folder or file is stored as it is, and `bitsnap extract` gives it back byte for byte. Tensors are found in "
      "safetensors, torch, DCP and numpy files. Before the step is saved, everything is decoded and compared.\n"
      "Of a reference, or a folder with one, the checkpoint to which it leads is copied from its run.\n"
      "With --keep-last or --keep-every the run is pruned once the step is saved.\n"
      "A new run remembers the settings that it is made with; by default they are lossless, balanced, previous and a "
      "depth of 8. Options given later hold for that step only. Loss rules given later come before those of the run, "
      "which do not apply to another policy. No run remembers --codec.");
  return {app, [options, &common] { return add(*options, common); }};
}

}  // namespace bitsnap::cli
