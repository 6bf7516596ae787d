// `bitsnap decompress`: restores the file or folder that a snapshot was made from, byte for byte.
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <bitsnap/snapshot.hpp>

#include "cli/command.hpp"
#include "cli/file_paths.hpp"
#include "cli/input/run_path.hpp"
#include "cli/output/folder_output.hpp"
#include "cli/output/left_out.hpp"
#include "cli/output/safetensors_output.hpp"

namespace bitsnap::cli {

namespace {

struct DecompressOptions {
  std::string input;
  SafetensorsOutput output;
  std::vector<std::string> bases;
  bool partial = false;
};

Json report_json(const DecompressOptions& options, const SafetensorsOutput& output, const Snapshot& snapshot) {
  return {{"input", options.input},
          {"output", output.path},
          {"id", snapshot.id().to_hex()},
          {"input_bytes", snapshot.file_bytes()}};
}

Result<int> decompress_folder(const DecompressOptions& options, const SafetensorsOutput& output,
                              const std::shared_ptr<const Snapshot>& snapshot, const CommonOptions& common) {
  BITSNAP_ASSIGN(const auto folder, Folder::open(snapshot));
  const std::string label = file_name(options.input);
  LeftOut left_out;
  if (options.partial) {
    BITSNAP_ASSIGN(left_out, find_left_out(*folder, label, common));
  }
  BITSNAP_ASSIGN(const auto written, write_folder(*folder, std::nullopt, output, label, common, left_out.numbers));
  if (common.json) {
    Json report = report_json(options, output, *snapshot);
    add_written(report, written);
    if (options.partial) add_left_out(report, left_out);
    print_json(report);
  } else if (!common.quiet) {
    print_written_folder(options.input, *snapshot, output, written);
  }
  return report_left_out(left_out);
}

Result<int> decompress(const DecompressOptions& options, const CommonOptions& common) {
  BITSNAP_TRY(check_no_run(options.input));
  SafetensorsOutput output = options.output;
  BITSNAP_TRY(check_stdout(output, common));
  OpenOptions open;
  open.base_paths = options.bases;
  BITSNAP_ASSIGN(auto snapshot, Snapshot::open(options.input, open));
  const bool has_folder = is_folder(*snapshot);
  if (output.path.empty()) {
    output.path = replace_extension(options.input, ".bsnap", has_folder ? "" : ".safetensors");
  }
  if (!output.to_stdout()) {
    std::vector<std::string> inputs = options.bases;
    inputs.push_back(options.input);
    BITSNAP_TRY(check_output(output.path, inputs, output.force));
  }
  if (has_folder) return decompress_folder(options, output, snapshot, common);
  const std::string label = file_name(options.input);
  LeftOut left_out;
  if (options.partial) {
    BITSNAP_ASSIGN(left_out, find_left_out(*snapshot, label, common));
  }
  BITSNAP_ASSIGN(auto written, write_safetensors(*snapshot, std::nullopt, output, label, common, left_out.numbers));
  if (common.json) {
    Json report = report_json(options, output, *snapshot);
    add_written(report, written);
    if (options.partial) add_left_out(report, left_out);
    print_json(report);
  } else if (!common.quiet) {
    print_written(options.input, *snapshot, output, written, common);
  }
  return report_left_out(left_out);
}

}  // namespace

Command add_decompress(CLI::App& program, const CommonOptions& common) {
  auto options = std::make_shared<DecompressOptions>();
  CLI::App* app = program.add_subcommand("decompress", "Restore the file or folder of a snapshot");
  app->group(kFilesGroup);
  app->add_option("IN.bsnap", options->input, "The snapshot")->required()->type_name("");
  add_output_options(*app, options->output, "IN without .bsnap, with .safetensors if it holds tensors only");
  add_base_option(*app, options->bases,
                  "A snapshot, or a folder of them, that IN may depend on, besides those in its own folder");
  add_partial_option(*app, options->partial);
  return {app, [options, &common]() -> Result<int> {
            auto status = decompress(*options, common);
            if (status || options->partial) return status;
            return tl::unexpected(suggest_partial(std::move(status).error()));
          }};
}

}  // namespace bitsnap::cli
