// `bitsnap compress`: stores a safetensors file as a snapshot, standalone or against a base.
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>

#include <bitsnap/safetensors.hpp>
#include <bitsnap/snapshot.hpp>
#include <bitsnap/writer.hpp>

#include "cli/coding_options.hpp"
#include "cli/common_options.hpp"
#include "cli/error_macros.hpp"
#include "cli/file_paths.hpp"
#include "cli/output.hpp"
#include "cli/progress_bar.hpp"
#include "cli/run_path.hpp"
#include "cli/stored_sizes.hpp"
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
  std::string policy;
  std::optional<std::string> objective;  // set if the policy chooses by objective
  std::shared_ptr<const Snapshot> base;
  SaveSummary summary;
};

void print_report_json(const CompressReport& report) {
  print_json({{"input", report.input},
              {"output", report.output},
              {"id", report.summary.id.to_hex()},
              {"policy", report.policy},
              {"objective", report.objective ? Json(*report.objective) : Json()},
              {"base", report.base ? Json(report.base->id().to_hex()) : Json()},
              {"input_bytes", report.input_bytes},
              {"output_bytes", report.summary.stored_bytes},
              {"tensor_bytes", report.summary.raw_bytes},
              {"chunks", report.summary.chunks},
              {"ratio", static_cast<double>(report.input_bytes) / static_cast<double>(report.summary.stored_bytes)},
              {"seconds", report.seconds},
              {"gbps", static_cast<double>(report.input_bytes) / report.seconds / 1e9}});
}

// Read back from the file, so that the report shows what it holds.
Result<void> print_details(const CompressReport& report, const OpenOptions& open) {
  print_note(fmt::format("id {}, policy {}{}, {}\n", report.summary.id.to_hex(), report.policy,
                         report.objective ? " for " + *report.objective : "",
                         format_plural(report.summary.chunks, "chunk")));
  if (report.base) {
    print_note(fmt::format("base {} ({})\n", report.base->id().to_hex(), printable(report.base->name())));
  }
  BITSNAP_ASSIGN(auto written, Snapshot::open(report.output, open));
  BITSNAP_ASSIGN(auto sizes, measure_sizes(*written));
  print_note(render_roles(*written, sizes, std::nullopt));
  return {};
}

Result<int> compress(const CompressOptions& options, const CommonOptions& common) {
  const CodingSettings settings = merge_settings(options.coding.settings, default_settings());
  CompressReport report;
  report.input = options.input;
  report.output = options.output.empty() ? replace_extension(options.input, ".safetensors", ".bsnap") : options.output;
  report.policy = policy_name(*settings.policy);
  if (chooses_by_objective(*settings.policy)) report.objective = objective_name(*settings.objective);

  BITSNAP_TRY(check_no_run(options.input));
  BITSNAP_ASSIGN(auto kind, detect_file_kind(options.input));
  if (kind != FileKind::safetensors) {
    return fail(ErrorKind::invalid_argument,
                fmt::format("{}: is {}, and `compress` takes safetensors files", options.input,
                            kind == FileKind::snapshot ? "a snapshot already" : "no safetensors file"));
  }
  std::vector<std::string> inputs = options.bases;
  inputs.push_back(options.input);
  BITSNAP_TRY(check_output(report.output, inputs, options.force));

  SaveOptions save{.settings = settings};
  BITSNAP_ASSIGN(save.adam, adam_of(options.coding.adam));
  OpenOptions open;
  open.base_paths = options.bases;
  if (!options.bases.empty()) {
    BITSNAP_TRY(check_no_run(options.bases.front()));
    BITSNAP_ASSIGN(auto base, Snapshot::open(options.bases.front(), open));
    report.base = base;
  }
  BITSNAP_ASSIGN(auto input_bytes, file_size(options.input));
  report.input_bytes = input_bytes;

  const auto start = std::chrono::steady_clock::now();
  BITSNAP_ASSIGN(auto state, open_safetensors(options.input));
  if (!common.quiet) {
    warn_of_idle_rules(settings, state);
  }
  {
    ProgressBar bar(file_name(options.input), !common.quiet);
    save.base = report.base;
    save.overwrite = options.force;
    save.threads = common.threads;
    save.progress = bar.callback();
    auto summary = save_snapshot(report.output, state, save);
    if (!summary) {
      return tl::unexpected(explain_adam(std::move(summary).error()));
    }
    report.summary = *summary;
  }
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();

  if (common.json) {
    print_report_json(report);
  } else if (!common.quiet) {
    print_note(fmt::format("{} : {} -> {}  ({}, {})  {}\n", printable(report.input), format_size(report.input_bytes),
                           format_size(report.summary.stored_bytes),
                           format_ratio(report.input_bytes, report.summary.stored_bytes),
                           format_speed(report.input_bytes, report.seconds), printable(report.output)));
    if (common.verbose) {
      BITSNAP_TRY(print_details(report, open));
    }
  }
  return 0;
}

}  // namespace

Command add_compress(CLI::App& program, const CommonOptions& common) {
  auto options = std::make_shared<CompressOptions>();
  CLI::App* app = program.add_subcommand("compress", "Store a safetensors file as a snapshot");
  app->group(kFilesGroup);
  app->add_option("IN.safetensors", options->input, "The safetensors file")->required()->type_name("");
  app->add_option("-o,--output", options->output, "Where to write; otherwise IN with the extension .bsnap")
      ->type_name("OUT.bsnap");
  app->add_option("--base", options->bases,
                  "Store what changed since this snapshot; given again, files or folders with its own bases")
      ->type_name("BASE.bsnap")
      ->allow_extra_args(false);
  add_coding_options(*app, options->coding, CodingTarget::file);
  app->add_flag("-f,--force", options->force, "Overwrite the output");
  return {app, [options, &common] { return compress(*options, common); }};
}

}  // namespace bitsnap::cli
