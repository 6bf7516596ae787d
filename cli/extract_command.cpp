// `bitsnap extract`: one checkpoint of a run back into the safetensors file it was made from, byte for byte.
#include <memory>
#include <optional>
#include <string>

#include <fmt/format.h>

#include <bitsnap/store.hpp>

#include "cli/common_options.hpp"
#include "cli/exit_code.hpp"
#include "cli/file_paths.hpp"
#include "cli/output.hpp"
#include "cli/run_path.hpp"
#include "cli/safetensors_output.hpp"

namespace bitsnap::cli {

namespace {

struct ExtractOptions {
  std::string path;
  std::string output;
  std::optional<std::uint64_t> shard;
  bool to_stdout = false;
  bool force = false;
};

// Beside the run, as `decompress` writes beside its input: a run keeps nothing but its checkpoints.
std::string default_output(const OpenCheckpoint& checkpoint) {
  std::string path = fmt::format("{}-{}", run_folder(checkpoint.run).string(), checkpoint.info.step);
  if (checkpoint.info.shards > 1) {
    path += fmt::format("-shard-{}", checkpoint.shard);
  }
  return path + ".safetensors";
}

Result<int> extract(const ExtractOptions& options, const CommonOptions& common) {
  SafetensorsOutput output{options.to_stdout ? kStdoutName : options.output, options.force};
  if (auto checked = check_stdout(output, common); !checked) {
    return tl::unexpected(std::move(checked).error());
  }
  auto path = parse_run_path(options.path);
  if (!path) {
    return tl::unexpected(std::move(path).error());
  }
  auto checkpoint = open_checkpoint(*path, options.shard);
  if (!checkpoint) {
    return tl::unexpected(std::move(checkpoint).error());
  }
  if (output.path.empty()) {
    output.path = default_output(*checkpoint);
  }
  if (!output.to_stdout()) {
    auto checked = check_outside(checkpoint->run, output.path).and_then([&] {
      return check_output(output.path, {}, options.force);
    });
    if (!checked) {
      return tl::unexpected(std::move(checked).error());
    }
  }
  const std::string name = checkpoint_name(checkpoint->run, checkpoint->info.step);
  auto written = write_safetensors(*checkpoint->snapshot, output, file_name(name), common);
  if (!written) {
    return tl::unexpected(std::move(written).error());
  }
  if (common.json) {
    print_json({{"run", checkpoint->run},
                {"step", checkpoint->info.step},
                {"shard", checkpoint->shard},
                {"shards", checkpoint->info.shards},
                {"output", output.path},
                {"id", checkpoint->snapshot->id().to_hex()},
                {"input_bytes", checkpoint->snapshot->file_bytes()},
                {"output_bytes", written->bytes},
                {"original_header", written->exact},
                {"seconds", written->seconds},
                {"gbps", written->gbps()}});
  } else if (!common.quiet) {
    print_written(name, *checkpoint->snapshot, output, *written, common);
  }
  return kExitOk;
}

}  // namespace

Command add_extract(CLI::App& program, const CommonOptions& common) {
  auto options = std::make_shared<ExtractOptions>();
  CLI::App* app = program.add_subcommand("extract", "Give back the safetensors file of a checkpoint");
  app->group(kRunsGroup);
  app->add_option("RUN[@STEP]", options->path, "The run, and the step; otherwise the newest")
      ->required()
      ->type_name("");
  add_output_options(*app, options->output, options->to_stdout, options->force, "RUN-STEP.safetensors beside the run");
  add_shard_option(*app, options->shard);
  return {app, [options, &common] { return extract(*options, common); }};
}

}  // namespace bitsnap::cli
