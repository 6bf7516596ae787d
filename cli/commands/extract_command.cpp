// `bitsnap extract`: restores the folder or file of a checkpoint, one file of the folder, or one tensor.
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include <fmt/format.h>

#include <bitsnap/folder.hpp>
#include <bitsnap/store.hpp>
#include <bitsnap/text.hpp>

#include "cli/command.hpp"
#include "cli/file_paths.hpp"
#include "cli/input/run_path.hpp"
#include "cli/output/folder_output.hpp"
#include "cli/output/left_out.hpp"
#include "cli/output/safetensors_output.hpp"

namespace bitsnap::cli {

namespace {

struct ExtractOptions {
  std::string path;
  SafetensorsOutput output;
  std::optional<std::uint64_t> shard;
  std::optional<std::string> file;
  std::optional<std::string> tensor;
  bool partial = false;
};

// Next to the run, not in it: a run contains only its checkpoints.
std::string default_output(const OpenCheckpoint& checkpoint) {
  std::string path = fmt::format("{}-{}", run_folder(checkpoint.run).string(), checkpoint.info.step);
  if (checkpoint.info.shards > 1) {
    path += fmt::format("-shard-{}", checkpoint.shard);
  }
  return path;
}

// The same extension as the file that was saved.
std::string folder_output(const OpenCheckpoint& checkpoint, const Folder& folder,
                          const std::optional<std::string>& file) {
  if (file) return file_name(*file);
  const bool is_file = folder.entries().front().kind == EntryKind::file;
  return default_output(checkpoint) + (is_file ? std::filesystem::path(folder.name()).extension().string() : "");
}

Json report_json(const OpenCheckpoint& checkpoint, const SafetensorsOutput& output) {
  return {{"run", checkpoint.run},
          {"step", checkpoint.info.step},
          {"shard", checkpoint.shard},
          {"shards", checkpoint.info.shards},
          {"output", output.path},
          {"id", checkpoint.snapshot->id().to_hex()},
          {"input_bytes", checkpoint.snapshot->file_bytes()}};
}

Result<int> extract_folder(const ExtractOptions& options, const OpenCheckpoint& checkpoint,
                           const CommonOptions& common) {
  BITSNAP_ASSIGN(const auto folder, Folder::open(checkpoint.snapshot));
  SafetensorsOutput output = options.output;
  if (output.path.empty()) output.path = folder_output(checkpoint, *folder, options.file);
  if (!output.to_stdout()) BITSNAP_TRY(check_outside(checkpoint.run, output.path));
  const std::string name = checkpoint_name(checkpoint.run, checkpoint.info.step);
  LeftOut left_out;
  if (options.partial && !options.file) {
    BITSNAP_ASSIGN(left_out, find_left_out(*folder, file_name(name), common));
  }
  BITSNAP_ASSIGN(const auto written,
                 write_folder(*folder, options.file, output, file_name(name), common, left_out.numbers));
  if (common.json) {
    Json report = report_json(checkpoint, output);
    add_written(report, written);
    if (options.partial) add_left_out(report, left_out);
    print_json(report);
  } else if (!common.quiet) {
    print_written_folder(name, *checkpoint.snapshot, output, written);
  }
  return report_left_out(left_out);
}

Result<int> extract(const ExtractOptions& options, const CommonOptions& common) {
  SafetensorsOutput output = options.output;
  BITSNAP_TRY(check_stdout(output, common));
  BITSNAP_ASSIGN(auto path, parse_run_path(options.path));
  BITSNAP_ASSIGN(auto checkpoint, open_checkpoint(path, options.shard, options.partial));
  if (!options.tensor && is_folder(*checkpoint.snapshot)) return extract_folder(options, checkpoint, common);
  if (options.file) {
    return fail(ErrorKind::invalid_argument,
                fmt::format("{}: holds no folder, so it has no file '{}'",
                            checkpoint_name(checkpoint.run, checkpoint.info.step), printable(*options.file)));
  }
  if (output.path.empty()) {
    output.path = default_output(checkpoint) + ".safetensors";
  }
  if (!output.to_stdout()) {
    BITSNAP_TRY(check_outside(checkpoint.run, output.path));
    BITSNAP_TRY(check_output(output.path, {}, output.force));
  }
  const std::string name = checkpoint_name(checkpoint.run, checkpoint.info.step);
  LeftOut left_out;
  if (options.partial && !options.tensor) {
    BITSNAP_ASSIGN(left_out, find_left_out(*checkpoint.snapshot, file_name(name), common));
  }
  BITSNAP_ASSIGN(auto written, write_safetensors(*checkpoint.snapshot, options.tensor, output, file_name(name), common,
                                                 left_out.numbers));
  if (common.json) {
    Json report = report_json(checkpoint, output);
    add_written(report, written);
    if (options.partial) add_left_out(report, left_out);
    print_json(report);
  } else if (!common.quiet) {
    print_written(name, *checkpoint.snapshot, output, written, common);
  }
  return report_left_out(left_out);
}

}  // namespace

Command add_extract(CLI::App& program, const CommonOptions& common) {
  auto options = std::make_shared<ExtractOptions>();
  CLI::App* app = program.add_subcommand("extract", "Restore the folder or file of a checkpoint");
  app->group(kRunsGroup);
  app->add_option("RUN[@STEP]", options->path, "The run, or one of its checkpoints; default: the newest")
      ->required()
      ->type_name("");
  add_output_options(*app, options->output, "RUN-STEP next to the run, with the extension of the file");
  CLI::Option* file = app->add_option("--file", options->file, "Only this file of the folder")->type_name("PATH");
  app->add_option("--tensor", options->tensor, "Only this tensor, as a safetensors file")
      ->type_name("NAME")
      ->excludes(file);
  add_shard_option(*app, options->shard);
  add_partial_option(*app, options->partial);
  return {app, [options, &common]() -> Result<int> {
            auto status = extract(*options, common);
            if (status || options->partial || options->file || options->tensor) return status;
            return tl::unexpected(suggest_partial(std::move(status).error()));
          }};
}

}  // namespace bitsnap::cli
