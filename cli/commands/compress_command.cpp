// `bitsnap compress`: stores a file or a folder as a snapshot, standalone or against a base.
#include <algorithm>
#include <array>
#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <bitsnap/snapshot.hpp>
#include <bitsnap/writer.hpp>

#include "cli/coding_options.hpp"
#include "cli/command.hpp"
#include "cli/file_paths.hpp"
#include "cli/input/checkpoint_input.hpp"
#include "cli/input/run_path.hpp"
#include "cli/output/progress_bar.hpp"
#include "cli/output/stored_sizes.hpp"
#include "cli/text_format.hpp"

namespace bitsnap::cli {

namespace {

struct CompressOptions {
  std::string input;
  std::string output;
  std::vector<std::string> bases;  // the base, then files and folders with the bases of the base
  CodingOptions coding;
  bool force = false;
};

struct CompressReport {
  std::string input;
  std::string output;
  std::uint64_t input_bytes = 0;
  double seconds = 0;
  CodingSettings settings;
  std::shared_ptr<const Snapshot> base;
  SaveSummary summary;
};

Json report_json(const CompressReport& report) {
  const SaveSummary& summary = report.summary;
  Json document = {{"input", report.input}, {"output", report.output}, {"id", summary.id.to_hex()}};
  add_policy(document, report.settings);
  document["base"] = report.base ? Json(report.base->id().to_hex()) : Json();
  document["input_bytes"] = report.input_bytes;
  document["output_bytes"] = summary.stored_bytes;
  document["raw_bytes"] = summary.raw_bytes;
  document["chunks"] = summary.chunks;
  document["ratio"] = ratio_json(report.input_bytes, summary.stored_bytes);
  document["seconds"] = report.seconds;
  document["gbps"] = static_cast<double>(report.input_bytes) / report.seconds / 1e9;
  return document;
}

// Of a name that other programs take for a file of theirs.
void warn_of_other_name(const std::string& output) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 7> kOthers = {{{".pt", "torch.load()"},
                                                                                     {".pth", "torch.load()"},
                                                                                     {".ckpt", "torch.load()"},
                                                                                     {".bin", "torch.load()"},
                                                                                     {".safetensors", "safetensors"},
                                                                                     {".npz", "numpy.load()"},
                                                                                     {".npy", "numpy.load()"}}};
  const std::string extension = std::filesystem::path(output).extension().string();
  const auto* const other =
      std::ranges::find(kOthers, extension, &std::pair<std::string_view, std::string_view>::first);
  if (other == kOthers.end()) return;
  print_warning(fmt::format("{}: becomes a snapshot, which bitsnap reads and {} does not; name it *.bsnap", output,
                            other->second),
                error_kind_name(ErrorKind::invalid_argument));
}

// Read back from the file, so that the report shows what it holds.
Result<void> print_details(const CompressReport& report, const OpenOptions& open) {
  print_note(fmt::format("id {}, policy {}, {}\n", report.summary.id.to_hex(), describe_policy(report.settings),
                         format_plural(report.summary.chunks, "chunk")));
  if (report.base) {
    print_note(fmt::format("base {} ({})\n", report.base->id().to_hex(), printable(report.base->name())));
  }
  BITSNAP_ASSIGN(auto written, Snapshot::open(report.output, open));
  BITSNAP_ASSIGN(auto sizes, measure_sizes(*written));
  print_note(render_roles(sizes, std::nullopt));
  return {};
}

// "." and "a/.." have no name to which an extension could be added.
std::string default_output(const std::string& input) {
  const std::string name = file_name(without_slash(input));
  const bool is_nameless = name == "." || name == "..";
  return replace_extension(is_nameless ? resolve_path(input).string() : without_slash(input), ".safetensors", ".bsnap");
}

Result<int> compress(const CompressOptions& options, const CommonOptions& common) {
  CompressReport report;
  report.settings = merge_settings(options.coding.settings, default_settings());
  report.input = options.input;
  report.output = options.output.empty() ? default_output(options.input) : options.output;

  BITSNAP_ASSIGN(const auto input, open_input(options.input, "compress"));
  report.input_bytes = input.bytes;
  std::vector<std::string> inputs = options.bases;
  inputs.push_back(options.input);
  BITSNAP_TRY(check_output(report.output, inputs, options.force));
  BITSNAP_TRY(check_not_within(report.output, options.input));

  SaveOptions save{.settings = report.settings};
  BITSNAP_ASSIGN(save.adam, adam_of(options.coding.adam));
  const OpenOptions open{.base_paths = options.bases};
  if (!options.bases.empty()) {
    BITSNAP_TRY(check_no_run(options.bases.front()));
    BITSNAP_ASSIGN(report.base, open_snapshot(options.bases.front(), open));
  }
  if (!common.quiet) {
    warn_of_other_name(report.output);
    warn_of_plain_files(input);
    warn_of_idle_rules(report.settings, input.state);
  }
  const auto start = std::chrono::steady_clock::now();
  {
    ProgressBar bar(file_name(options.input), !common.quiet);
    save.base = report.base;
    save.overwrite = options.force;
    save.threads = common.threads;
    save.progress = bar.callback();
    save.check = [&](const Snapshot& written) { return check_written(input, written, common.threads); };
    auto summary = save_snapshot(report.output, input.state, save);
    if (!summary) return tl::unexpected(explain_adam(std::move(summary).error()));
    report.summary = *summary;
  }
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();

  if (common.json) {
    print_json(report_json(report));
  } else if (!common.quiet) {
    print_note(describe_stored(report.input, report.input_bytes, report.summary.stored_bytes, report.seconds) +
               printable(report.output) + '\n');
    if (common.verbose) BITSNAP_TRY(print_details(report, open));
  }
  return 0;
}

}  // namespace

Command add_compress(CLI::App& program, const CommonOptions& common) {
  auto [app, options] =
      new_command<CompressOptions>(program, kFilesGroup, "compress", "Store a file or a folder as a snapshot");
  add_argument(*app, "IN", options->input, "A safetensors, torch, DCP or numpy file, any other file, or a folder");
  app->add_option("-o,--output", options->output,
                  "Where to write; otherwise IN.bsnap, with .bsnap in place of .safetensors")
      ->type_name("OUT.bsnap");
  add_base_option(*app, options->bases,
                  "Store what changed since this snapshot; given again, files or folders with its own bases");
  add_coding_options(*app, options->coding, CodingTarget::file);
  app->add_flag("-f,--force", options->force, "Overwrite the output");
  return {app, [options, &common] { return compress(*options, common); }};
}

}  // namespace bitsnap::cli
