// `bitsnap analyze`: studies the user's own states: their bits, how they change from step to step, and how small coders
// and quantizers make them.
#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <bitsnap/analysis.hpp>

#include "cli/analysis/analyze_report.hpp"
#include "cli/analysis/baseline_coders.hpp"
#include "cli/coding_options.hpp"
#include "cli/command.hpp"
#include "cli/file_paths.hpp"
#include "cli/number_option.hpp"
#include "cli/output/global_sizes.hpp"
#include "cli/output/progress_bar.hpp"
#include "cli/output/stored_sizes.hpp"

namespace bitsnap::cli {

namespace {

constexpr std::uint64_t kMega = 1'000'000;

struct AnalyzeOptions {
  AnalyzeArguments arguments;
  std::vector<std::string> globs;
  std::uint64_t limit_mb = 32;
  bool full = false;
  AdamOptions adam;
};

bool matches_glob(const std::string& glob, const TensorInfo& tensor) {
  return fits(LossRule{.name = glob}, tensor.role, tensor.name);
}

bool is_selected(const std::vector<std::string>& globs, const TensorInfo& tensor) {
  return globs.empty() ||
         std::ranges::any_of(globs, [&](const std::string& glob) { return matches_glob(glob, tensor); });
}

// The stored sizes of the tensors with chunks of their own, by number.
Result<void> measure_stored(const TensorFile& file, StateReport& report) {
  if (file.checkpoint != nullptr) {
    BITSNAP_ASSIGN(const GlobalSizes sizes, measure_sizes(*file.checkpoint));
    report.stored_bytes = sizes.file_bytes;
    for (std::size_t i = 0; i < sizes.tensors.size(); ++i) {
      if (sizes.tensors[i].streams.chunks > 0) report.stored[i] = sizes.tensors[i].streams;
    }
    return {};
  }
  const Snapshot& snapshot = *file.snapshot;
  BITSNAP_ASSIGN(const auto sizes, measure_sizes(snapshot));
  report.stored_bytes = snapshot.file_bytes();
  for (std::size_t i = 0; i < report.tensors.size(); ++i) {
    const auto stream = snapshot.stream_of(i);
    if (stream && !report.tensors[i].alias_of) report.stored[i] = sizes.streams[*stream];
  }
  return {};
}

Result<void> add_stored_sizes(const TensorFile& file, StateReport& report) {
  BITSNAP_TRY(measure_stored(file, report));
  for (const GroupAnalysis& group : report.analysis.groups) {
    StreamSizes& sum = report.groups.emplace_back();
    for (const TensorAnalysis& tensor : report.analysis.tensors) {
      const TensorInfo& info = report.tensors[tensor.tensor];
      const auto stored = report.stored.find(tensor.tensor);
      if (tensor.kind == TensorAnalysis::Kind::analyzed && info.role == group.role &&
          info.dtype_name == group.dtype_name && stored != report.stored.end()) {
        sum.raw_bytes += stored->second.raw_bytes;
        sum.stored_bytes += stored->second.stored_bytes;
      }
    }
  }
  return {};
}

// Adam's values in the snapshot, which has them for first moments that it quantized.
std::optional<AdamNumbers> recorded_adam(const Snapshot* snapshot, std::size_t tensor) {
  if (snapshot == nullptr) return std::nullopt;
  const auto stream = snapshot->stream_of(tensor);
  if (!stream || !snapshot->quantizer(*stream)) return std::nullopt;
  return snapshot->quantizer(*stream)->adam;
}

// Baselines and quantizers are measured for the last state only.
Result<StateReport> analyze_pair(const StatePair& pair, bool is_last, const AnalyzeOptions& options,
                                 const CommonOptions& common) {
  BITSNAP_ASSIGN(OpenPair opened, open_pair(pair, options.arguments.shard));
  const TensorFile& file = opened.state;
  StateReport report{pair.state, pair.earlier, file.tensors, {}, std::nullopt, std::nullopt, {}, {}};
  {
    ProgressBar bar(file_name(pair.state.path), !common.quiet, ProgressBar::Unit::share);
    AnalysisOptions analysis;
    analysis.sample_bytes = options.full ? 0 : options.limit_mb * kMega;
    analysis.quantizers = is_last;
    analysis.codes_all_tensors = common.verbose || !options.globs.empty();
    if (is_last) {
      BITSNAP_ASSIGN(auto said, adam_of(options.adam, pair.state.run ? pair.state.run->step : std::nullopt));
      report.adam = said;
      analysis.baselines = baseline_coders();
      analysis.adam = [&report, said, snapshot = file.snapshot.get()](std::size_t tensor) {
        const auto numbers = said ? said : recorded_adam(snapshot, tensor);
        if (!report.adam) report.adam = numbers;
        return numbers;
      };
    }
    analysis.wanted = [&](const TensorInfo& tensor) { return is_selected(options.globs, tensor); };
    analysis.run = bar.run(common);
    BITSNAP_ASSIGN(report.analysis, analyze_state(file, opened.earlier ? &*opened.earlier : nullptr, analysis));
  }
  if (file.snapshot != nullptr || file.checkpoint != nullptr) BITSNAP_TRY(add_stored_sizes(file, report));
  return report;
}

Result<void> check_globs(const StateReport& report, const AnalyzeOptions& options) {
  for (const std::string& glob : options.globs) {
    if (std::ranges::none_of(report.tensors, [&](const TensorInfo& tensor) { return matches_glob(glob, tensor); })) {
      return fail(ErrorKind::not_found, fmt::format("{}: has no tensor '{}'", report.state.path, glob));
    }
  }
  return {};
}

Result<int> analyze(const AnalyzeOptions& options, const CommonOptions& common) {
  BITSNAP_ASSIGN(auto pairs, find_states(options.arguments));
  std::vector<StateReport> reports;
  for (const StatePair& pair : pairs) {
    BITSNAP_ASSIGN(auto report, analyze_pair(pair, &pair == &pairs.back(), options, common));
    BITSNAP_TRY(check_globs(report, options));
    reports.push_back(std::move(report));
  }
  if (common.json) {
    print_json(analysis_json(reports, options.full ? std::nullopt : std::optional(options.limit_mb * kMega),
                             common.verbose || !options.globs.empty()));
  } else {
    print_result(render_analysis(reports, common.verbose || !options.globs.empty(), common.table_width()));
  }
  return kExitOk;
}

}  // namespace

Command add_analyze(CLI::App& program, const CommonOptions& common) {
  auto [app, options] = new_command<AnalyzeOptions>(program, kBothGroup, "analyze",
                                                    "Study how states change, bit by bit, and how small they can get");
  app->add_option(
         "FILE|RUN", options->arguments.paths,
         "A run or a checkpoint RUN@STEP, compared with the checkpoint before it; or files, each compared with "
         "the one named before it")
      ->required()
      ->type_name("");
  add_number_option(*app, "--steps", options->arguments.steps, 1, "Analyze N checkpoints, spread over the run");
  app->add_option("--tensor", options->globs, "Only tensors with matching names, such as '*.mlp.*'; shows each of them")
      ->type_name("GLOB")
      ->allow_extra_args(false);
  CLI::Option* limit = add_sample_option(
                           *app, [&limit_mb = options->limit_mb](std::uint64_t megabytes) { limit_mb = megabytes; },
                           "Size of the sample of each state, in MB")
                           ->default_str(fmt::format("{}", options->limit_mb));
  app->add_flag("--full", options->full, "Read everything instead of a sample")->excludes(limit);
  add_shard_option(*app, options->arguments.shard);
  add_adam_options(*app, options->adam, "Updates of Adam (a snapshot that quantized first moments knows them)",
                   "Of Adam, for the quantizer update_step and errors of updates, with --eps",
                   "Steps that Adam has taken at the last state; otherwise the checkpoint's step");
  app->footer(
      "-v shows each tensor. --json has the bits, entropies, distances and codecs of each state and role, and for the "
      "last state baselines and quantizers; with -v or --tensor it has all of that for each tensor.");
  return {app, [options, &common] { return analyze(*options, common); }};
}

}  // namespace bitsnap::cli
