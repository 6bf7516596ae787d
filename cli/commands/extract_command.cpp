// `bitsnap extract`: restores the folder or file of a checkpoint, one file of the folder, or one tensor.
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <fmt/format.h>

#include <bitsnap/convert.hpp>
#include <bitsnap/folder.hpp>
#include <bitsnap/store.hpp>
#include <bitsnap/text.hpp>

#include "cli/command.hpp"
#include "cli/file_paths.hpp"
#include "cli/input/run_path.hpp"
#include "cli/input/training_input.hpp"
#include "cli/output/restoration.hpp"

namespace bitsnap::cli {

namespace {

struct ExtractOptions {
  std::string path;
  RestoreOutput output;
  std::optional<std::uint64_t> shard;
  std::optional<std::string> file;
  std::optional<std::string> tensor;
};

// Next to the run, not in it: a run contains only its checkpoints.
std::string default_output(const std::string& run, const Checkpoint& info, std::optional<std::uint64_t> shard) {
  std::string path = fmt::format("{}-{}", run_folder(run).string(), info.step);
  if (info.shards > 1 && shard) path += fmt::format("-shard-{}", *shard);
  return path;
}

// With the extension of the file that was saved.
Result<std::string> output_of_folder(const OpenCheckpoint& checkpoint, const std::optional<std::string>& file) {
  if (file) return file_name(*file);
  BITSNAP_ASSIGN(const auto folder, Folder::open(checkpoint.snapshot));
  const bool is_file = folder->entries().front().kind == EntryKind::file;
  return default_output(checkpoint.run, checkpoint.info, checkpoint.shard) +
         (is_file ? std::filesystem::path(folder->name()).extension().string() : "");
}

// The tensors and values of all shards, as one file.
Result<int> extract_whole(WholeCheckpoint checkpoint, const ExtractOptions& options, RestoreOutput output,
                          const CommonOptions& common) {
  const std::string name = checkpoint_name(checkpoint.run, checkpoint.info.step);
  const bool has_folder = is_folder(*checkpoint.snapshots.front());
  if (has_folder || options.file || output.partial) {
    return fail(ErrorKind::invalid_argument,
                fmt::format("{}: has {} shards, which {}; choose one with --shard 0 to --shard {}", name,
                            checkpoint.info.shards,
                            has_folder     ? "hold folders"
                            : options.file ? "hold no folder"
                                           : "--partial does not put together",
                            checkpoint.info.shards - 1));
  }
  if (output.path.empty()) output.path = default_output(checkpoint.run, checkpoint.info, {}) + ".safetensors";
  if (!output.to_stdout()) {
    BITSNAP_TRY(check_outside(checkpoint.run, output.path));
    BITSNAP_TRY(check_output(output.path, {}, output.force));
  }
  BITSNAP_ASSIGN(TrainingState training, training_state(checkpoint.snapshots, *checkpoint.tensors));
  for (const std::string& lost : training.left_out) {
    print_warning(fmt::format("{}: left out: {}", name, printable(lost)), "unsupported");
  }
  Restoration what{.snapshot = nullptr,
                   .state = std::make_shared<const State>(std::move(training.state)),
                   .name = name,
                   .report = {{"run", checkpoint.run},
                              {"step", checkpoint.info.step},
                              {"shard", nullptr},
                              {"shards", checkpoint.info.shards}},
                   .tensor = options.tensor};
  for (const auto& shard : checkpoint.snapshots) what.state_bytes += shard->file_bytes();
  return restore(what, output, common);
}

Result<int> extract(const ExtractOptions& options, const CommonOptions& common) {
  RestoreOutput output = options.output;
  BITSNAP_TRY(check_stdout(output, common));
  BITSNAP_ASSIGN(auto path, parse_run_path(options.path));
  BITSNAP_ASSIGN(const OpenCheckpoint checkpoint, open_checkpoint(path, options.shard.value_or(0), output.partial));
  if (!options.shard && checkpoint.info.shards > 1) {
    BITSNAP_ASSIGN(WholeCheckpoint whole, open_whole({path.run, checkpoint.info.step}, std::nullopt));
    return extract_whole(std::move(whole), options, std::move(output), common);
  }
  const std::string name = checkpoint_name(checkpoint.run, checkpoint.info.step);
  const bool has_folder = !options.tensor && is_folder(*checkpoint.snapshot);
  if (options.file && !has_folder) {
    return fail(ErrorKind::invalid_argument,
                fmt::format("{}: holds no folder, so it has no file '{}'", name, printable(*options.file)));
  }
  if (output.path.empty() && has_folder) {
    BITSNAP_ASSIGN(output.path, output_of_folder(checkpoint, options.file));
  } else if (output.path.empty()) {
    output.path = default_output(checkpoint.run, checkpoint.info, checkpoint.shard) + ".safetensors";
  }
  if (!output.to_stdout()) {
    BITSNAP_TRY(check_outside(checkpoint.run, output.path));
    if (!has_folder) BITSNAP_TRY(check_output(output.path, {}, output.force));
  }
  return restore({.snapshot = checkpoint.snapshot,
                  .name = name,
                  .report = {{"run", checkpoint.run},
                             {"step", checkpoint.info.step},
                             {"shard", checkpoint.shard},
                             {"shards", checkpoint.info.shards}},
                  .file = options.file,
                  .tensor = options.tensor},
                 output, common);
}

}  // namespace

Command add_extract(CLI::App& program, const CommonOptions& common) {
  auto [app, options] =
      new_command<ExtractOptions>(program, kRunsGroup, "extract", "Restore the folder or file of a checkpoint");
  add_argument(*app, "RUN[@STEP]", options->path, "The run, or one of its checkpoints; default: the newest");
  add_output_options(*app, options->output, "RUN-STEP next to the run, with the extension of the file");
  CLI::Option* file = app->add_option("--file", options->file, "Only this file of the folder")->type_name("PATH");
  app->add_option("--tensor", options->tensor, "Only this tensor, as a safetensors file")
      ->type_name("NAME")
      ->excludes(file);
  add_shard_option(*app, options->shard);
  add_partial_option(*app, options->output);
  return {app, [options, &common] {
            auto status = extract(*options, common);
            const bool is_advised = !options->output.partial && !options->file && !options->tensor;
            return is_advised ? suggest_partial(std::move(status)) : status;
          }};
}

}  // namespace bitsnap::cli
