// `bitsnap decompress`: a snapshot back into the safetensors file it was made from, byte for byte.
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <memory>
#include <span>
#include <string>
#include <system_error>
#include <vector>

#include <fmt/format.h>

#include <bitsnap/safetensors.hpp>
#include <bitsnap/snapshot.hpp>

#include "cli/common_options.hpp"
#include "cli/console.hpp"
#include "cli/file_paths.hpp"
#include "cli/output.hpp"
#include "cli/progress_bar.hpp"
#include "cli/text_format.hpp"

namespace bitsnap::cli {

namespace {

struct DecompressOptions {
  std::string input;
  std::string output;
  std::vector<std::string> bases;
  bool to_stdout = false;
  bool force = false;
};

Result<void> write_to_stdout(std::span<const std::byte> piece) {
  errno = 0;
  if (std::fwrite(piece.data(), 1, piece.size(), stdout) != piece.size()) {
    return fail(ErrorKind::io, fmt::format("standard output: {}", std::generic_category().message(errno)));
  }
  return {};
}

Result<int> decompress(const DecompressOptions& options, const CommonOptions& common) {
  const bool to_stdout = options.to_stdout || options.output == "-";
  std::string output = "-";
  if (!to_stdout) {
    output = options.output.empty() ? replace_extension(options.input, ".bsnap", ".safetensors") : options.output;
    std::vector<std::string> inputs = options.bases;
    inputs.push_back(options.input);
    if (auto checked = check_output(output, inputs, options.force); !checked) {
      return tl::unexpected(std::move(checked).error());
    }
  } else if (common.json) {
    return fail(ErrorKind::invalid_argument, "--json and the file itself cannot both go to standard output");
  } else if (is_terminal(stdout) && !options.force) {
    return fail(ErrorKind::invalid_argument, "standard output is a terminal; -f writes a safetensors file to it");
  }

  const auto start = std::chrono::steady_clock::now();
  OpenOptions open;
  open.base_paths = options.bases;
  auto snapshot = Snapshot::open(options.input, open);
  if (!snapshot) {
    return tl::unexpected(std::move(snapshot).error());
  }
  std::uint64_t bytes = 0;
  {
    ProgressBar bar(file_name(options.input), !common.quiet);
    RunOptions run;
    run.threads = common.threads;
    run.progress = bar.callback();
    auto summary = to_stdout ? stream_safetensors(**snapshot, write_to_stdout, run)
                             : export_safetensors(**snapshot, output, options.force, run);
    if (!summary) {
      return tl::unexpected(std::move(summary).error());
    }
    bytes = summary->bytes;
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const bool exact = (*snapshot)->safetensors_header().has_value();

  if (common.json) {
    print_json({{"input", options.input},
                {"output", output},
                {"id", (*snapshot)->id().to_hex()},
                {"input_bytes", (*snapshot)->file_bytes()},
                {"output_bytes", bytes},
                {"original_header", exact},
                {"seconds", seconds},
                {"gbps", static_cast<double>(bytes) / seconds / 1e9}});
  } else if (!common.quiet) {
    print_note(fmt::format("{} : {} -> {}  ({})  {}\n", printable(options.input),
                           format_size((*snapshot)->file_bytes()), format_size(bytes), format_speed(bytes, seconds),
                           to_stdout ? "standard output" : printable(output)));
    if (common.verbose) {
      print_note(fmt::format("id {}, {}, {}\n", (*snapshot)->id().to_hex(),
                             format_plural((*snapshot)->tensors().size(), "tensor"),
                             exact ? "the file it was made from, byte for byte" : "with a header of its own"));
    }
  }
  return 0;
}

}  // namespace

Command add_decompress(CLI::App& program, const CommonOptions& common) {
  auto options = std::make_shared<DecompressOptions>();
  CLI::App* app = program.add_subcommand("decompress", "Give back the safetensors file of a snapshot");
  app->add_option("IN.bsnap", options->input, "The snapshot")->required()->type_name("");
  CLI::Option* output =
      app->add_option("-o,--output", options->output,
                      "Where to write; - is standard output; otherwise IN with the extension .safetensors")
          ->type_name("OUT.safetensors");
  app->add_flag("-c,--stdout", options->to_stdout, "Write to standard output")->excludes(output);
  app->add_option("--base", options->bases,
                  "A snapshot, or a folder of them, that IN may depend on, besides those in its own folder")
      ->type_name("BASE.bsnap")
      ->allow_extra_args(false);
  app->add_flag("-f,--force", options->force, "Overwrite the output");
  return {app, [options, &common] { return decompress(*options, common); }};
}

}  // namespace bitsnap::cli
