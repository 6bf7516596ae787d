// `bitsnap decompress`: a snapshot back into the safetensors file it was made from, byte for byte.
#include <memory>
#include <string>
#include <vector>

#include <bitsnap/snapshot.hpp>

#include "cli/common_options.hpp"
#include "cli/exit_code.hpp"
#include "cli/file_paths.hpp"
#include "cli/output.hpp"
#include "cli/run_path.hpp"
#include "cli/safetensors_output.hpp"

namespace bitsnap::cli {

namespace {

struct DecompressOptions {
  std::string input;
  std::string output;
  std::vector<std::string> bases;
  bool to_stdout = false;
  bool force = false;
};

Result<int> decompress(const DecompressOptions& options, const CommonOptions& common) {
  if (auto checked = check_no_run(options.input); !checked) {
    return tl::unexpected(std::move(checked).error());
  }
  SafetensorsOutput output{options.to_stdout ? kStdoutName : options.output, options.force};
  if (output.path.empty()) {
    output.path = replace_extension(options.input, ".bsnap", ".safetensors");
  }
  if (auto checked = check_stdout(output, common); !checked) {
    return tl::unexpected(std::move(checked).error());
  }
  if (!output.to_stdout()) {
    std::vector<std::string> inputs = options.bases;
    inputs.push_back(options.input);
    if (auto checked = check_output(output.path, inputs, options.force); !checked) {
      return tl::unexpected(std::move(checked).error());
    }
  }
  OpenOptions open;
  open.base_paths = options.bases;
  auto snapshot = Snapshot::open(options.input, open);
  if (!snapshot) {
    return tl::unexpected(std::move(snapshot).error());
  }
  auto written = write_safetensors(**snapshot, output, file_name(options.input), common);
  if (!written) {
    return tl::unexpected(std::move(written).error());
  }
  if (common.json) {
    print_json({{"input", options.input},
                {"output", output.path},
                {"id", (*snapshot)->id().to_hex()},
                {"input_bytes", (*snapshot)->file_bytes()},
                {"output_bytes", written->bytes},
                {"original_header", written->exact},
                {"seconds", written->seconds},
                {"gbps", written->gbps()}});
  } else if (!common.quiet) {
    print_written(options.input, **snapshot, output, *written, common);
  }
  return kExitOk;
}

}  // namespace

Command add_decompress(CLI::App& program, const CommonOptions& common) {
  auto options = std::make_shared<DecompressOptions>();
  CLI::App* app = program.add_subcommand("decompress", "Give back the safetensors file of a snapshot");
  app->group(kFilesGroup);
  app->add_option("IN.bsnap", options->input, "The snapshot")->required()->type_name("");
  add_output_options(*app, options->output, options->to_stdout, options->force, "IN with the extension .safetensors");
  app->add_option("--base", options->bases,
                  "A snapshot, or a folder of them, that IN may depend on, besides those in its own folder")
      ->type_name("BASE.bsnap")
      ->allow_extra_args(false);
  return {app, [options, &common] { return decompress(*options, common); }};
}

}  // namespace bitsnap::cli
