// `bitsnap estimate`: what a run would hold for checkpoints that exist, from a sample of their bytes.
#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <bitsnap/estimate.hpp>
#include <bitsnap/folder.hpp>

#include "cli/coding_options.hpp"
#include "cli/command.hpp"
#include "cli/file_paths.hpp"
#include "cli/input/checkpoint_input.hpp"
#include "cli/input/checkpoint_names.hpp"
#include "cli/input/run_path.hpp"
#include "cli/number_option.hpp"
#include "cli/output/progress_bar.hpp"
#include "cli/output/table.hpp"
#include "cli/text_format.hpp"
#include "cli/watch/raw_inputs.hpp"

namespace bitsnap::cli {

namespace {

constexpr std::uint64_t kSampleUnit = 1'000'000;

struct EstimateArguments {
  std::vector<std::string> inputs;
  CodingOptions coding;
  std::optional<std::uint64_t> keep_last;
  std::uint64_t limit_mb = 1000;
  bool full = false;
};

struct EstimateInput {
  std::string path;
  std::optional<std::uint64_t> step;  // nullopt: of a name without one
};

bool has_step(const std::string& path) { return step_of_name(run_name(without_slash(path))).has_value(); }

// As `ingest` finds them, by step. If no name has a step, neither of a path nor in a directory, the paths are
// checkpoints in the order that they are given in.
Result<std::vector<EstimateInput>> find_estimate_inputs(const std::vector<std::string>& paths, bool is_quiet) {
  std::vector<EstimateInput> inputs;
  const auto take_as_given = [&] {
    for (const std::string& path : paths) inputs.push_back({path, std::nullopt});
    return inputs;
  };
  const bool has_files =
      std::ranges::any_of(paths, [](const std::string& path) { return file_size(path).has_value(); });
  const bool has_steps = std::ranges::any_of(paths, has_step);
  if (!has_steps && has_files) return take_as_given();
  BITSNAP_ASSIGN(RawInputs found, find_raw_inputs(paths));
  if (!found.gone.empty()) {
    return fail(ErrorKind::not_found, fmt::format("{}: does not exist", found.gone.front().path));
  }
  if (found.checkpoints.empty()) return take_as_given();
  BITSNAP_TRY(check_none_empty(found));
  for (const RawSkipped& skipped : found.skipped) {
    if (is_quiet) break;
    print_note(fmt::format("{} : skipped, {}\n", printable(skipped.path), printable(skipped.reason)));
  }
  for (RawCheckpoint& checkpoint : found.checkpoints) inputs.push_back({std::move(checkpoint.path), checkpoint.step});
  return inputs;
}

Result<std::shared_ptr<const State>> open_checkpoint_state(const EstimateInput& input,
                                                           const EstimateArguments& arguments) {
  auto opened = input.step ? open_raw_input(input.path, "estimate", *input.step) : open_input(input.path, "estimate");
  if (!opened) return tl::unexpected(std::move(opened).error());
  BITSNAP_ASSIGN(const auto adam, adam_of(arguments.coding.adam, input.step));
  const auto folder = std::make_shared<FolderState>(std::move(*opened));
  for (TensorSource& tensor : folder->state.tensors) tensor.adam = adam;
  return std::shared_ptr<const State>(folder, &folder->state);
}

std::string describe_pattern(const HeldEstimate& held) {
  if (held.backwards) return "each is coded against the next one when that is there";
  return held.period > 1 ? fmt::format("one of {} is standalone, the others are coded against it", held.period)
                         : std::string("all are standalone");
}

std::string in_percent(double share) { return fmt::format("{:.1f} %", share * 100); }

std::string render_held(const HeldEstimate& held, const char* title, const std::string& pattern,
                        std::optional<std::size_t> width) {
  Table table({{"", Align::left}, {"size", Align::right}, {"95 %", Align::right}, {"of raw", Align::right}});
  const auto raw = static_cast<double>(held.raw_bytes);
  const auto add = [&](const char* name, const Estimated& bytes, double of) {
    table.add_row({name, format_size(static_cast<std::uint64_t>(bytes.value)),
                   fmt::format("± {}", format_size(static_cast<std::uint64_t>(bytes.error))),
                   in_percent(bytes.value / of)});
  };
  table.add_row({"as raw files", format_size(held.raw_bytes), "", in_percent(1)});
  add("after a save", held.mean, raw);
  add("at most, during a save", held.peak, raw);
  add("written by each save", held.written, raw / static_cast<double>(held.kept));
  return fmt::format("{}, {} kept; {}\n{}", title, format_count(held.kept), pattern, table.render(width));
}

std::string render_estimate(const RunEstimate& estimate, const EstimateArguments& arguments,
                            const std::vector<EstimateInput>& inputs, std::optional<std::size_t> width) {
  std::string out = fmt::format("{}, {}; read {} ({})\n\n", format_plural(estimate.checkpoints, "checkpoint"),
                                format_size(estimate.raw_bytes), format_size(estimate.read_bytes),
                                format_share(estimate.read_bytes, estimate.raw_bytes));
  Table pairs({{"part of raw", Align::left, Narrow::middle},
               {"standalone", Align::right},
               {"against the one before", Align::right},
               {"the one before against it", Align::right}});
  const auto cell = [](const std::optional<double>& share) { return share ? in_percent(*share) : std::string("-"); };
  for (const PairEstimate& pair : estimate.pairs) {
    pairs.add_row({printable(file_name(inputs[pair.checkpoint].path)), in_percent(pair.alone), cell(pair.earlier),
                   cell(pair.later)});
  }
  pairs.add_rule();
  const auto mean = [](const std::optional<Estimated>& share) {
    return share ? fmt::format("{:.1f} ± {:.1f} %", share->value * 100, share->error * 100) : std::string("-");
  };
  pairs.add_row({"mean", mean(estimate.alone), mean(estimate.earlier), mean(estimate.later)});
  out += pairs.render(width);

  out += '\n';
  if (arguments.keep_last) {
    out += render_held(estimate.these, "A run of these checkpoints", "in the end, " + describe_pattern(estimate.these),
                       width) +
           '\n';
    out += render_held(*estimate.long_run, "A run that goes on like this",
                       "in the end, " + describe_pattern(*estimate.long_run), width);
  } else {
    out += render_held(estimate.these, "A run of these checkpoints", "all are kept", width);
  }
  if (estimate.checkpoints == 1) {
    out +=
        "\nOne checkpoint shows only what it takes standalone; what coding against another one gains is unknown.\n"
        "Name a second one to measure it.\n";
  }
  if (estimate.unmatched > 0) {
    out += fmt::format("\nUp to {} of the bytes are in tensors that the checkpoint before does not have.\n",
                       format_share(estimate.unmatched));
  }
  return out;
}

Json estimated_json(const Estimated& value) { return {{"value", value.value}, {"error", value.error}}; }

Json estimated_json(const std::optional<Estimated>& value) { return value ? estimated_json(*value) : Json(); }

Json held_json(const HeldEstimate& held, const EstimateArguments& arguments) {
  return {{"kept", held.kept},
          {"raw_bytes", held.raw_bytes},
          {"backwards", arguments.keep_last ? Json(held.backwards) : Json()},
          {"period", arguments.keep_last ? Json(held.period) : Json()},
          {"mean_bytes", estimated_json(held.mean)},
          {"peak_bytes", estimated_json(held.peak)},
          {"written_bytes", estimated_json(held.written)}};
}

Json estimate_json(const RunEstimate& estimate, const EstimateArguments& arguments, const CodingSettings& settings,
                   const std::vector<EstimateInput>& inputs) {
  Json document = {{"checkpoints", estimate.checkpoints},
                   {"raw_bytes", estimate.raw_bytes},
                   {"read_bytes", estimate.read_bytes},
                   {"pairs", Json::array()}};
  for (const PairEstimate& pair : estimate.pairs) {
    document["pairs"].push_back({{"path", inputs[pair.checkpoint].path},
                                 {"step", inputs[pair.checkpoint].step},
                                 {"alone", pair.alone},
                                 {"earlier", pair.earlier},
                                 {"later", pair.later}});
  }
  document["alone"] = estimated_json(estimate.alone);
  document["earlier"] = estimated_json(estimate.earlier);
  document["later"] = estimated_json(estimate.later);
  document["unmatched"] = estimate.unmatched;
  add_policy(document, settings);
  document["keep_last"] = arguments.keep_last;
  document["these"] = held_json(estimate.these, arguments);
  document["long_run"] = estimate.long_run ? held_json(*estimate.long_run, arguments) : Json();
  return document;
}

Result<int> run_estimate(const EstimateArguments& arguments, const CommonOptions& common) {
  BITSNAP_ASSIGN(const auto inputs, find_estimate_inputs(arguments.inputs, common.quiet));
  std::vector<EstimateSource> sources;
  for (const EstimateInput& input : inputs) {
    sources.push_back({input.path, [&input, &arguments] { return open_checkpoint_state(input, arguments); }});
  }
  ProgressBar bar("estimate", !common.quiet, ProgressBar::Unit::share);
  const EstimateOptions options{.settings = arguments.coding.settings,
                                .keep_last = arguments.keep_last,
                                .sample_bytes = arguments.full ? 0 : arguments.limit_mb * kSampleUnit,
                                .run = bar.run(common)};
  auto estimated = estimate_run(sources, options);
  if (!estimated) return tl::unexpected(explain_adam(std::move(estimated).error()));
  bar.clear();
  if (common.json) {
    print_json(estimate_json(*estimated, arguments, merge_settings(options.settings, default_settings()), inputs));
  } else {
    print_result(render_estimate(*estimated, arguments, inputs, common.table_width()));
  }
  return kExitOk;
}

}  // namespace

Command add_estimate(CLI::App& program, const CommonOptions& common) {
  auto [app, options] = new_command<EstimateArguments>(
      program, kRunsGroup, "estimate", "Estimate what a run would hold for checkpoints, without writing it");
  add_argument(*app, "IN", options->inputs, "Checkpoints of one training, or directories that contain checkpoints");
  add_number_option(*app, "--keep-last", options->keep_last, 1,
                    "The run keeps the N newest checkpoints; default: it keeps all of these");
  CLI::Option* limit = add_sample_option(
                           *app, [&limit_mb = options->limit_mb](std::uint64_t megabytes) { limit_mb = megabytes; },
                           "Size of the sample of all checkpoints, in MB")
                           ->default_str(fmt::format("{}", options->limit_mb));
  app->add_flag("--full", options->full, "Read everything instead of a sample")->excludes(limit);
  add_coding_options(*app, options->coding, CodingTarget::run);
  app->footer(
      "Checkpoints are found, and ordered by the steps in their names, as by `bitsnap ingest`. If no name has a step, "
      "they are taken in the order given. Chunks at the same places of up to four pairs of neighbours are encoded in "
      "memory, and the rules of a run say what follows. The 95 % intervals are those of the sample.");
  return {app, [options, &common] { return run_estimate(*options, common); }};
}

}  // namespace bitsnap::cli
