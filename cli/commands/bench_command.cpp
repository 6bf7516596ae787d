// `bitsnap bench`: bitsnap's codecs and baselines side by side, on the user's own tensors.
#include <algorithm>
#include <cstdint>
#include <fstream>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <bitsnap/codec.hpp>
#include <bitsnap/cpu.hpp>
#include <bitsnap/version.hpp>

#include "cli/analysis/baseline_coders.hpp"
#include "cli/analysis/bench_runner.hpp"
#include "cli/command.hpp"
#include "cli/file_paths.hpp"
#include "cli/input/training_input.hpp"
#include "cli/number_option.hpp"
#include "cli/output/progress_bar.hpp"
#include "cli/output/table.hpp"
#include "cli/text_format.hpp"

namespace bitsnap::cli {

static void to_json(Json& json, const BenchResult& result) {
  json = {{"name", result.name},
          {"threads", result.threads},
          {"ratio", result.ratio},
          {"encode_gbps", result.encode_gbps},
          {"decode_gbps", result.decode_gbps},
          {"encode_of_memcpy", result.encode_of_memcpy},
          {"decode_of_memcpy", result.decode_of_memcpy},
          {"encoded_bytes", result.encoded_bytes},
          {"covered_bytes", result.covered_bytes},
          {"rounds", result.rounds}};
}

namespace {

constexpr double kMostBenchSeconds = 86'400;
constexpr std::uint64_t kMostRounds = 1000;

struct BenchOptions {
  std::string file;
  std::vector<std::string> bases;
  std::optional<std::uint64_t> limit_mb;
  BenchLimits limits;
};

struct BenchReport {
  BenchSample sample;
  BenchOutcome outcome;
  std::string processor;
  unsigned threads = 0;
};

// Each coder codes the whole sample at least once. So less time means a smaller sample, unless the user chose one:
// `--seconds 3` took 62 s with 64 MB, and takes 6 s with 6.4 MB.
std::uint64_t sample_bytes(const BenchOptions& options) {
  constexpr double kMegabyte = 1e6;
  constexpr double kMegabytes = 64;
  constexpr double kSeconds = 30;  // that are enough for that sample
  if (options.limit_mb) return *options.limit_mb * std::uint64_t{1'000'000};
  return static_cast<std::uint64_t>(kMegabyte *
                                    std::max(1.0, kMegabytes * std::min(1.0, options.limits.seconds / kSeconds)));
}

// From /proc/cpuinfo; empty on other systems.
std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  constexpr std::string_view kKey = "model name";
  for (std::string line; std::getline(file, line);) {
    const auto colon = line.find(": ");
    if (line.starts_with(kKey) && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "";
}

Json report_json(const BenchOptions& options, const BenchReport& report) {
  return {
      {"file", options.file},
      {"base", options.bases.empty() ? Json() : Json(options.bases.front())},
      {"bytes", report.sample.total_bytes},
      {"sample_bytes", report.sample.bytes},
      {"version", version()},
      {"machine",
       {{"processor", report.processor}, {"cpu_level", cpu_level_name(cpu_level())}, {"threads", report.threads}}},
      {"smallest_codec_of_each_chunk_ratio", ratio_json(report.sample.bytes, report.outcome.smallest_encoded_bytes)},
      {"results", report.outcome.results}};
}

std::string render_report(const BenchOptions& options, const BenchReport& report, const CommonOptions& common) {
  const BenchSample& sample = report.sample;
  std::string out = fmt::format("{}: {} of {} in {}", printable(options.file), format_size(sample.bytes),
                                format_size(sample.total_bytes), format_plural(sample.chunks.size(), "chunk"));
  out += sample.bytes < sample.total_bytes ? " (a sample; --limit-mb sets its size)\n" : "\n";
  if (!options.bases.empty()) {
    out += fmt::format("base {}: {} have a counterpart in it\n", printable(options.bases.front()),
                       format_size(sample.based_bytes));
  }
  out += fmt::format("{}, level {}; every round trip was compared bit by bit\n\n",
                     report.processor.empty() ? "processor unknown" : printable(report.processor),
                     cpu_level_name(cpu_level()));

  Table table({{"coder"},
               {"threads", Align::right},
               {"ratio", Align::right},
               {"encode GB/s", Align::right},
               {"of memcpy", Align::right},
               {"decode GB/s", Align::right},
               {"of memcpy", Align::right},
               {"takes", Align::right},
               {"rounds", Align::right}});
  for (const BenchResult& result : report.outcome.results) {
    const auto number = [](double value) { return fmt::format("{:.3f}", value); };
    table.add_row({result.name, fmt::format("{}", result.threads), format_ratio(result.ratio),
                   number(result.encode_gbps), number(result.encode_of_memcpy), number(result.decode_gbps),
                   number(result.decode_of_memcpy), format_share(result.covered_bytes, sample.bytes),
                   fmt::format("{}", result.rounds)});
  }
  out += table.render(common.table_width());
  out += fmt::format("\neach chunk by its smallest codec: {}\n",
                     format_ratio(sample.bytes, report.outcome.smallest_encoded_bytes));
  if (common.verbose) {
    out +=
        "ratio: over the whole sample; chunks that a coder cannot encode or shrink count with their raw size\n"
        "takes: share of the sample that the coder can encode; speeds count the raw size of these bytes\n"
        "rounds: number of measurements; the table shows their medians\n";
  }
  return out;
}

Result<Coders> codec_coders(bool with_base) {
  Coders coders;
  for (const CodecInfo& codec : list_codecs()) {
    for (const bool on_base : {false, true}) {
      if (on_base && !with_base) continue;
      BITSNAP_ASSIGN(auto coder, make_codec_coder(codec.name, on_base));
      coders.push_back(std::move(coder));
    }
  }
  return coders;
}

void add_baselines(Coders& coders, bool with_base) {
  coders.push_back(make_memcpy_coder());
  for (const auto& baseline : baseline_coders()) {
    coders.push_back(baseline);
    coders.push_back(make_plane_coder(baseline, BytePlanes::plain));
    if (with_base) coders.push_back(make_plane_coder(baseline, BytePlanes::of_xor));
  }
}

Result<int> bench(const BenchOptions& options, const CommonOptions& common) {
  const OpenOptions open{.base_paths = options.bases};
  BITSNAP_ASSIGN(auto file, open_tensors(options.file, open));
  std::optional<TensorFile> base;
  if (!options.bases.empty()) {
    BITSNAP_ASSIGN(base, open_tensors(options.bases.front(), open));
  }
  BITSNAP_ASSIGN(auto sample, load_sample(file, base ? &*base : nullptr, sample_bytes(options)));
  if (sample.chunks.empty()) {
    return fail(ErrorKind::invalid_argument, fmt::format("{}: has no bytes to measure on", options.file));
  }

  BenchReport report;
  report.sample = std::move(sample);
  report.processor = processor_name();
  report.threads = common.threads == 0 ? std::max(1U, std::thread::hardware_concurrency()) : common.threads;

  BenchLimits limits = options.limits;
  limits.threads = {1};
  if (report.threads > 1) limits.threads.push_back(report.threads);
  BITSNAP_ASSIGN(auto coders, codec_coders(base.has_value()));
  const std::size_t codecs = coders.size();
  add_baselines(coders, base.has_value());
  {
    ProgressBar bar(file_name(options.file), !common.quiet, ProgressBar::Unit::share);
    constexpr std::uint64_t kSteps = 1000;
    const BenchProgress progress = [&](std::string_view coder, double done) {
      bar.set_label(coder);
      return bar.update(static_cast<std::uint64_t>(done * static_cast<double>(kSteps)), kSteps);
    };
    BITSNAP_ASSIGN(report.outcome, run_bench(report.sample, coders, codecs, limits, progress));
  }
  if (common.json) {
    print_json(report_json(options, report));
  } else {
    print_result(render_report(options, report, common));
  }
  return 0;
}

}  // namespace

Command add_bench(CLI::App& program, const CommonOptions& common) {
  auto [app, options] =
      new_command<BenchOptions>(program, kFilesGroup, "bench", "Compare sizes and speeds of all codecs, zstd and lz4");
  add_argument(*app, "FILE", options->file, "A snapshot, or a file or folder with tensors");
  add_base_option(*app, options->bases,
                  "Also code against this earlier file; repeat to name files or folders with bases of either file")
      ->type_name("FILE");
  add_sample_option(
      *app, [&limit = options->limit_mb](std::uint64_t megabytes) { limit = megabytes; },
      "Size of the sample, which is spread evenly over the file, in MB [64, or less for a short --seconds]");
  BenchLimits& limits = options->limits;
  add_real_option(
      *app, "--seconds", 0, kMostBenchSeconds, [&limits](double seconds) { limits.seconds = seconds; },
      "Time for all rounds; slow coders get fewer rounds, but at least one measurement")
      ->type_name("S")
      ->default_str(fmt::format("{}", limits.seconds));
  add_number_option(
      *app, "--rounds", 1, kMostRounds,
      [&limits](std::uint64_t rounds) { limits.rounds = static_cast<unsigned>(rounds); },
      "Most measurements of each coder")
      ->default_str(fmt::format("{}", limits.rounds));
  app->footer("Runs on one thread and on all threads (-T sets their number). -v explains the columns.");
  return {app, [options, &common] { return bench(*options, common); }};
}

}  // namespace bitsnap::cli
