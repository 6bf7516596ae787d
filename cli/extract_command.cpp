// `bitsnap extract`: restores the safetensors file of a checkpoint, byte for byte.
#include <memory>
#include <optional>
#include <string>

#include <fmt/format.h>

#include <bitsnap/store.hpp>

#include "cli/command.hpp"
#include "cli/file_paths.hpp"
#include "cli/run_path.hpp"
#include "cli/safetensors_output.hpp"

namespace bitsnap::cli {

namespace {

struct ExtractOptions {
  std::string path;
  SafetensorsOutput output;
  std::optional<std::uint64_t> shard;
};

// Next to the run, not in it: a run contains only its checkpoints.
std::string default_output(const OpenCheckpoint& checkpoint) {
  std::string path = fmt::format("{}-{}", run_folder(checkpoint.run).string(), checkpoint.info.step);
  if (checkpoint.info.shards > 1) {
    path += fmt::format("-shard-{}", checkpoint.shard);
  }
  return path + ".safetensors";
}

Result<int> extract(const ExtractOptions& options, const CommonOptions& common) {
  SafetensorsOutput output = options.output;
  BITSNAP_TRY(check_stdout(output, common));
  BITSNAP_ASSIGN(auto path, parse_run_path(options.path));
  BITSNAP_ASSIGN(auto checkpoint, open_checkpoint(path, options.shard));
  if (output.path.empty()) {
    output.path = default_output(checkpoint);
  }
  if (!output.to_stdout()) {
    BITSNAP_TRY(check_outside(checkpoint.run, output.path));
    BITSNAP_TRY(check_output(output.path, {}, output.force));
  }
  const std::string name = checkpoint_name(checkpoint.run, checkpoint.info.step);
  BITSNAP_ASSIGN(auto written, write_safetensors(*checkpoint.snapshot, output, file_name(name), common));
  if (common.json) {
    print_json({{"run", checkpoint.run},
                {"step", checkpoint.info.step},
                {"shard", checkpoint.shard},
                {"shards", checkpoint.info.shards},
                {"output", output.path},
                {"id", checkpoint.snapshot->id().to_hex()},
                {"input_bytes", checkpoint.snapshot->file_bytes()},
                {"output_bytes", written.bytes},
                {"original_header", written.exact},
                {"seconds", written.seconds},
                {"gbps", written.gbps()}});
  } else if (!common.quiet) {
    print_written(name, *checkpoint.snapshot, output, written, common);
  }
  return kExitOk;
}

}  // namespace

Command add_extract(CLI::App& program, const CommonOptions& common) {
  auto options = std::make_shared<ExtractOptions>();
  CLI::App* app = program.add_subcommand("extract", "Restore the safetensors file of a checkpoint");
  app->group(kRunsGroup);
  app->add_option("RUN[@STEP]", options->path, "The run, or one of its checkpoints; default: the newest")
      ->required()
      ->type_name("");
  add_output_options(*app, options->output, "RUN-STEP.safetensors next to the run");
  add_shard_option(*app, options->shard);
  return {app, [options, &common] { return extract(*options, common); }};
}

}  // namespace bitsnap::cli
