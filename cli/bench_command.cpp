// `bitsnap bench`: bitsnap's codecs and general engines side by side, on the user's own tensors.
#include <cstdint>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <bitsnap/cpu.hpp>
#include <bitsnap/version.hpp>

#include "cli/bench_engine.hpp"
#include "cli/bench_runner.hpp"
#include "cli/bench_sample.hpp"
#include "cli/common_options.hpp"
#include "cli/file_paths.hpp"
#include "cli/output.hpp"
#include "cli/progress_bar.hpp"
#include "cli/table.hpp"
#include "cli/tensor_file.hpp"
#include "cli/text_format.hpp"

namespace bitsnap::cli {

namespace {

constexpr std::uint64_t kDefaultLimitMb = 64;
constexpr double kDefaultSeconds = 30;
constexpr unsigned kDefaultRounds = 5;
constexpr std::string_view kCeiling = "memcpy";

struct BenchOptions {
  std::string file;
  std::vector<std::string> bases;
  std::uint64_t limit_mb = kDefaultLimitMb;
  double seconds = kDefaultSeconds;
  unsigned rounds = kDefaultRounds;
};

struct BenchReport {
  BenchSample sample;
  BenchOutcome outcome;
  std::string processor;
  unsigned threads = 0;
};

// As Linux names it; empty elsewhere.
std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  constexpr std::string_view kKey = "model name";
  for (std::string line; std::getline(file, line);) {
    const auto colon = line.find(": ");
    if (line.starts_with(kKey) && colon != std::string::npos) {
      return line.substr(colon + 2);
    }
  }
  return "";
}

const BenchResult* find_ceiling(const std::vector<BenchResult>& results, unsigned threads) {
  for (const BenchResult& result : results) {
    if (result.name == kCeiling && result.threads == threads) {
      return &result;
    }
  }
  return nullptr;
}

double share_of(double value, double ceiling) { return ceiling > 0 ? value / ceiling : 0; }

void print_report_json(const BenchOptions& options, const BenchReport& report) {
  Json document = {{"file", options.file}};
  document["base"] = options.bases.empty() ? Json() : Json(options.bases.front());
  document["bytes"] = report.sample.total_bytes;
  document["sample_bytes"] = report.sample.bytes;
  document["version"] = version();
  document["machine"] = {
      {"processor", report.processor}, {"cpu_level", cpu_level_name(cpu_level())}, {"threads", report.threads}};
  document["smallest_codec_of_each_chunk_ratio"] =
      static_cast<double>(report.sample.bytes) / static_cast<double>(report.outcome.smallest_encoded_bytes);
  document["results"] = Json::array();
  for (const BenchResult& result : report.outcome.results) {
    const BenchResult* ceiling = find_ceiling(report.outcome.results, result.threads);
    document["results"].push_back(
        {{"name", result.name},
         {"threads", result.threads},
         {"ratio", result.ratio},
         {"encode_gbps", result.encode_gbps},
         {"decode_gbps", result.decode_gbps},
         {"encode_of_memcpy", ceiling == nullptr ? Json() : Json(share_of(result.encode_gbps, ceiling->encode_gbps))},
         {"decode_of_memcpy", ceiling == nullptr ? Json() : Json(share_of(result.decode_gbps, ceiling->decode_gbps))},
         {"encoded_bytes", result.encoded_bytes},
         {"covered_bytes", result.covered_bytes},
         {"rounds", result.rounds}});
  }
  print_json(document);
}

std::string render_report(const BenchOptions& options, const BenchReport& report, const CommonOptions& common) {
  const BenchSample& sample = report.sample;
  std::string out = fmt::format("{}: {} of {} in {}", printable(options.file), format_size(sample.bytes),
                                format_size(sample.total_bytes), format_plural(sample.chunks.size(), "chunk"));
  out += sample.bytes < sample.total_bytes ? " (a sample; --limit-mb sets its size)\n" : "\n";
  if (!options.bases.empty()) {
    out += fmt::format("base {}: {} have a counterpart\n", printable(options.bases.front()),
                       format_size(sample.based_bytes));
  }
  out += fmt::format("{}, level {}; every round trip was compared on bits\n\n",
                     report.processor.empty() ? "processor unknown" : printable(report.processor),
                     cpu_level_name(cpu_level()));

  Table table({{"engine"},
               {"threads", Align::right},
               {"ratio", Align::right},
               {"encode GB/s", Align::right},
               {"of memcpy", Align::right},
               {"decode GB/s", Align::right},
               {"of memcpy", Align::right},
               {"takes", Align::right},
               {"rounds", Align::right}});
  for (const BenchResult& result : report.outcome.results) {
    const BenchResult* ceiling = find_ceiling(report.outcome.results, result.threads);
    const auto share = [&](double value, double of) {
      return ceiling == nullptr ? std::string("-") : fmt::format("{:.3f}", share_of(value, of));
    };
    table.add_row({result.name, fmt::format("{}", result.threads), format_ratio(result.ratio),
                   fmt::format("{:.3f}", result.encode_gbps),
                   share(result.encode_gbps, ceiling == nullptr ? 0 : ceiling->encode_gbps),
                   fmt::format("{:.3f}", result.decode_gbps),
                   share(result.decode_gbps, ceiling == nullptr ? 0 : ceiling->decode_gbps),
                   format_share(result.covered_bytes, sample.bytes), fmt::format("{}", result.rounds)});
  }
  out += table.render(common.table_width());
  out += fmt::format("\nsmallest codec of each chunk together: {}\n",
                     format_ratio(sample.bytes, report.outcome.smallest_encoded_bytes));
  if (common.verbose) {
    out +=
        "ratio: over the whole sample, where what an engine cannot take or shrink counts as it is\n"
        "takes: the share of the sample that the engine can encode; speeds are of these bytes, uncompressed\n"
        "rounds: measurements, of which the median is shown\n";
  }
  return out;
}

Result<int> bench(const BenchOptions& options, const CommonOptions& common) {
  OpenOptions open;
  open.base_paths = options.bases;
  auto file = TensorFile::open(options.file, open);
  if (!file) {
    return tl::unexpected(std::move(file).error());
  }
  std::optional<TensorFile> base;
  if (!options.bases.empty()) {
    auto opened = TensorFile::open(options.bases.front(), open);
    if (!opened) {
      return tl::unexpected(std::move(opened).error());
    }
    base = std::move(*opened);
  }
  constexpr std::uint64_t kMegabyte = 1'000'000;
  auto sample = load_sample(*file, base ? &*base : nullptr, options.limit_mb * kMegabyte);
  if (!sample) {
    return tl::unexpected(std::move(sample).error());
  }
  if (sample->chunks.empty()) {
    return fail(ErrorKind::invalid_argument, fmt::format("{}: has no bytes to measure on", options.file));
  }

  BenchReport report;
  report.sample = std::move(*sample);
  report.processor = processor_name();
  report.threads = common.threads == 0 ? std::max(1U, std::thread::hardware_concurrency()) : common.threads;

  BenchLimits limits;
  limits.rounds = options.rounds;
  limits.seconds = options.seconds;
  limits.threads = {1};
  if (report.threads > 1) {
    limits.threads.push_back(report.threads);
  }
  BenchEngines engines;
  add_codec_engines(engines, base.has_value());
  const std::size_t codec_engines = engines.size();
  add_general_engines(engines, base.has_value());
  {
    ProgressBar bar(file_name(options.file), !common.quiet, ProgressBar::Unit::share);
    constexpr std::uint64_t kSteps = 1000;
    const BenchProgress progress = [&](std::string_view engine, double done) {
      bar.set_label(engine);
      return bar.update(static_cast<std::uint64_t>(done * static_cast<double>(kSteps)), kSteps);
    };
    auto outcome = run_bench(report.sample, engines, codec_engines, limits, progress);
    if (!outcome) {
      return tl::unexpected(std::move(outcome).error());
    }
    report.outcome = std::move(*outcome);
  }
  if (common.json) {
    print_report_json(options, report);
  } else {
    print_result(render_report(options, report, common));
  }
  return 0;
}

}  // namespace

Command add_bench(CLI::App& program, const CommonOptions& common) {
  auto options = std::make_shared<BenchOptions>();
  CLI::App* app = program.add_subcommand("bench", "Measure all codecs and zstd, lz4, bzip2 side by side");
  app->group(kFilesGroup);
  app->add_option("FILE", options->file, "A snapshot or a safetensors file")->required()->type_name("");
  app->add_option("--base", options->bases,
                  "Measure against this file as well; given again, files or folders with bases of either")
      ->type_name("FILE")
      ->allow_extra_args(false);
  app->add_option("--limit-mb", options->limit_mb, "Measure on an even sample of about so many MB")
      ->type_name("MB")
      ->check(CLI::Range(std::uint64_t{1}, std::uint64_t{1'000'000}).description(""))
      ->capture_default_str();
  app->add_option("--seconds", options->seconds,
                  "Time for all rounds; slow engines get fewer, but every engine is measured once")
      ->type_name("S")
      ->check(CLI::Range(0.0, 86400.0).description(""))
      ->capture_default_str();
  app->add_option("--rounds", options->rounds, "Measurements of each engine, at most")
      ->type_name("N")
      ->check(CLI::Range(1U, 1000U).description(""))
      ->capture_default_str();
  app->footer("Measures on one thread and on all (-T sets how many). -v explains the columns.");
  return {app, [options, &common] { return bench(*options, common); }};
}

}  // namespace bitsnap::cli
