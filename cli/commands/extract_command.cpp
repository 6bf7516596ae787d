// `bitsnap extract`: restores the folder or file of a checkpoint, one file of the folder, or one tensor.
#include <filesystem>
#include <optional>
#include <string>
#include <utility>

#include <fmt/format.h>

#include <bitsnap/folder.hpp>
#include <bitsnap/store.hpp>
#include <bitsnap/text.hpp>

#include "cli/command.hpp"
#include "cli/file_paths.hpp"
#include "cli/input/run_path.hpp"
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
std::string default_output(const OpenCheckpoint& checkpoint) {
  std::string path = fmt::format("{}-{}", run_folder(checkpoint.run).string(), checkpoint.info.step);
  if (checkpoint.info.shards > 1) path += fmt::format("-shard-{}", checkpoint.shard);
  return path;
}

// With the extension of the file that was saved.
Result<std::string> output_of_folder(const OpenCheckpoint& checkpoint, const std::optional<std::string>& file) {
  if (file) return file_name(*file);
  BITSNAP_ASSIGN(const auto folder, Folder::open(checkpoint.snapshot));
  const bool is_file = folder->entries().front().kind == EntryKind::file;
  return default_output(checkpoint) + (is_file ? std::filesystem::path(folder->name()).extension().string() : "");
}

Result<int> extract(const ExtractOptions& options, const CommonOptions& common) {
  RestoreOutput output = options.output;
  BITSNAP_TRY(check_stdout(output, common));
  BITSNAP_ASSIGN(auto path, parse_run_path(options.path));
  BITSNAP_ASSIGN(auto checkpoint, open_checkpoint(path, options.shard, output.partial));
  const std::string name = checkpoint_name(checkpoint.run, checkpoint.info.step);
  const bool has_folder = !options.tensor && is_folder(*checkpoint.snapshot);
  if (options.file && !has_folder) {
    return fail(ErrorKind::invalid_argument,
                fmt::format("{}: holds no folder, so it has no file '{}'", name, printable(*options.file)));
  }
  if (output.path.empty() && has_folder) {
    BITSNAP_ASSIGN(output.path, output_of_folder(checkpoint, options.file));
  } else if (output.path.empty()) {
    output.path = default_output(checkpoint) + ".safetensors";
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
