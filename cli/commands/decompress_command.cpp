// `bitsnap decompress`: restores the file or folder that a snapshot was made from, byte for byte.
#include <string>
#include <utility>
#include <vector>

#include <bitsnap/folder.hpp>
#include <bitsnap/snapshot.hpp>

#include "cli/command.hpp"
#include "cli/file_paths.hpp"
#include "cli/input/checkpoint_input.hpp"
#include "cli/input/run_path.hpp"
#include "cli/output/restoration.hpp"

namespace bitsnap::cli {

namespace {

struct DecompressOptions {
  std::string input;
  RestoreOutput output;
  std::vector<std::string> bases;
};

Result<int> decompress(const DecompressOptions& options, const CommonOptions& common) {
  BITSNAP_TRY(check_no_run(options.input));
  RestoreOutput output = options.output;
  BITSNAP_TRY(check_stdout(output, common));
  BITSNAP_ASSIGN(auto snapshot, open_snapshot(options.input, {.base_paths = options.bases}));
  if (output.path.empty()) {
    output.path = replace_extension(options.input, ".bsnap", is_folder(*snapshot) ? "" : ".safetensors");
  }
  if (!output.to_stdout()) {
    std::vector<std::string> inputs = options.bases;
    inputs.push_back(options.input);
    BITSNAP_TRY(check_output(output.path, inputs, output.force));
  }
  return restore({.snapshot = std::move(snapshot), .name = options.input, .report = {{"input", options.input}}}, output,
                 common);
}

}  // namespace

Command add_decompress(CLI::App& program, const CommonOptions& common) {
  auto [app, options] =
      new_command<DecompressOptions>(program, kFilesGroup, "decompress", "Restore the file or folder of a snapshot");
  add_argument(*app, "IN.bsnap", options->input, "The snapshot");
  add_output_options(*app, options->output, "IN without .bsnap, with .safetensors if it holds tensors only");
  add_base_option(*app, options->bases,
                  "A snapshot, or a folder of them, that IN may depend on, besides those in its own folder");
  add_partial_option(*app, options->output);
  return {app, [options, &common] {
            auto status = decompress(*options, common);
            return options->output.partial ? status : suggest_partial(std::move(status));
          }};
}

}  // namespace bitsnap::cli
