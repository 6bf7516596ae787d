// `bitsnap agent`: runs, shows and stops the agent of a job, which compresses and keeps the states that trainers stage.
#include <array>
#include <chrono>
#include <cstdint>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <bitsnap/engine.hpp>

#include "cli/command.hpp"
#include "cli/input/run_path.hpp"
#include "cli/number_option.hpp"
#include "cli/output/table.hpp"
#include "cli/text_format.hpp"

namespace bitsnap::cli {

namespace {

constexpr std::uint64_t kStatusMs = 10'000;

struct AgentCommandOptions {
  std::string job;
  std::string store;
  bool prometheus = false;
  bool abandon = false;
  bool full_speed = false;
  std::chrono::milliseconds hello{60'000};
  std::chrono::milliseconds wait{600'000};
};

Result<std::string> job_of(const AgentCommandOptions& options) {
  if (!options.job.empty()) return options.job;
  if (!options.store.empty()) return default_job(options.store);
  return fail(ErrorKind::invalid_argument, "name the agent by the store that the trainers save to, or by --job");
}

// An agent that is not there, by the run that the user has named.
template <typename T>
Result<T> explained(Result<T> answer, const AgentCommandOptions& options) {
  if (answer || answer.error().kind() != ErrorKind::not_found || !options.job.empty()) return answer;
  BITSNAP_TRY(check_is_there(options.store));
  return fail(ErrorKind::not_found,
              fmt::format("{}: {}; a training that saves in the background starts one, and it ends by itself",
                          options.store, answer.error().message()));
}

Result<int> run(const AgentCommandOptions& options, const CommonOptions& common) {
  BITSNAP_ASSIGN(const std::string job, job_of(options));
  const RunAgentOptions agent{
      .job = job, .hello_ms = static_cast<std::uint64_t>(options.hello.count()), .lower_priority = !options.full_speed};
  BITSNAP_ASSIGN(const AgentEnd ended, run_agent(agent));
  if (ended == AgentEnd::not_needed && !common.quiet) {
    print_note(fmt::format("bitsnap: job '{}' already has an agent\n", job));
  }
  return kExitOk;
}

Result<int> stop(const AgentCommandOptions& options, const CommonOptions& common) {
  BITSNAP_ASSIGN(const std::string job, job_of(options));
  BITSNAP_TRY(explained(stop_agent(job, options.abandon, static_cast<std::uint64_t>(options.wait.count())), options));
  if (common.json) {
    print_json({{"job", job}, {"stopped", true}});
  } else if (!common.quiet) {
    print_result(fmt::format("the agent of job '{}' has ended\n", job));
  }
  return kExitOk;
}

std::uint64_t number(const Json& row, const char* key) {
  const auto found = row.find(key);
  return found != row.end() && found->is_number_unsigned() ? found->get<std::uint64_t>() : 0;
}

double real(const Json& row, const char* key) {
  const auto found = row.find(key);
  return found != row.end() && found->is_number() ? found->get<double>() : 0;
}

std::string text_or_dash(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  return value.is_null() ? "-" : value.dump();
}

std::string joined(const std::vector<std::string>& words, std::string_view between, const char* if_none) {
  return words.empty() ? if_none : fmt::format("{}", fmt::join(words, between));
}

std::string steps_of(const Json& row) {
  std::vector<std::string> steps;
  for (const Json& step : row.value("memory_steps", Json::array())) steps.push_back(step.dump());
  return joined(steps, " ", "-");
}

std::string doing(const Json& row) {
  std::vector<std::string> words;
  if (row.value("encoding", false)) words.emplace_back("encoding");
  if (row.value("writing", false)) words.emplace_back("writing");
  if (const auto queued = number(row, "queued"); queued != 0) words.push_back(fmt::format("{} queued", queued));
  if (const auto waiting = number(row, "uncommitted"); waiting != 0) {
    words.push_back(fmt::format("{} waiting for other ranks", waiting));
  }
  return joined(words, ", ", "idle");
}

// What the process that copies the run has noted; null if there was none, or if no trainer has named a store yet.
Json noted_copy(const Json& report) {
  const auto store = report.find("store");
  if (store == report.end() || !store->is_string()) return {};
  std::ifstream file(store->get<std::string>() + "/mirror.json", std::ios::binary);
  Json noted = Json::parse(file, nullptr, false);
  return noted.is_object() && noted.contains("copy") ? noted : Json();
}

std::string render_copy(const Json& noted) {
  if (noted.is_null()) return "";
  const auto waiting = noted.find("waiting");
  const std::size_t steps = waiting != noted.end() && waiting->is_array() ? waiting->size() : 0;
  std::string out = fmt::format("copy {}, newest {}, {} waiting\n", text_or_dash(noted["copy"]),
                                text_or_dash(noted.value("newest", Json())), format_plural(steps, "step"));
  const Json error = noted.value("error", Json());
  return error.is_null() ? out : out + fmt::format("copy, last error: {}\n", text_or_dash(error));
}

std::string render(const Json& report, std::optional<std::size_t> width) {
  std::string out =
      fmt::format("job {}, agent process {}, up {:.0f} s, {} resident{}\n", text_or_dash(report["job"]),
                  text_or_dash(report["process"]), real(report, "up_seconds"),
                  format_size(number(report, "resident_bytes")), report.value("stopping", false) ? ", stopping" : "");
  out += fmt::format("store {}\n{}\n", text_or_dash(report["store"]), render_copy(report["mirror"]));
  Table table({{"rank", Align::right},
               {"trainer", Align::right},
               {"arena", Align::right, Narrow::never, 2},
               {"in memory", Align::right},
               {"steps", Align::left, Narrow::end},
               {"saves", Align::right},
               {"persisted", Align::right},
               {"failed", Align::right},
               {"ratio", Align::right},
               {"newest", Align::right},
               {"now", Align::left, Narrow::end}});
  for (const Json& row : report["ranks"]) {
    const std::uint64_t stored = number(row, "stored_bytes");
    table.add_row(
        {text_or_dash(row["rank"]), text_or_dash(row["trainer_process"]), format_size(number(row, "arena_bytes")),
         format_size(number(row, "memory_bytes")), steps_of(row), std::to_string(number(row, "saves")),
         std::to_string(number(row, "persisted")), std::to_string(number(row, "failed")),
         stored == 0
             ? "-"
             : fmt::format("{:.2f}", static_cast<double>(number(row, "raw_bytes")) / static_cast<double>(stored)),
         text_or_dash(row["last_persisted_step"]), doing(row)});
  }
  if (table.empty()) return out + "no trainer has connected yet\n";
  out += table.render(width);
  if (const auto earlier = report.find("earlier"); earlier != report.end() && earlier->is_object()) {
    out += fmt::format("earlier job of {} ranks: {} in memory, steps {}\n", number(*earlier, "world_size"),
                       format_size(number(*earlier, "memory_bytes")), steps_of(*earlier));
  }
  for (const Json& row : report["ranks"]) {
    if (!row["last_error"].is_null()) {
      out += fmt::format("rank {}, last error: {}\n", text_or_dash(row["rank"]), text_or_dash(row["last_error"]));
    }
  }
  return out;
}

// The exposition format of Prometheus, version 0.0.4.
struct Metric {
  const char* name;
  const char* type;
  const char* help;
  const char* key;  // of a rank's row
};

constexpr std::array kMetrics = {
    Metric{"bitsnap_saves_total", "counter", "States that the agent received.", "saves"},
    Metric{"bitsnap_persisted_total", "counter", "States that were committed in the store.", "persisted"},
    Metric{"bitsnap_failed_total", "counter", "Saves that failed.", "failed"},
    Metric{"bitsnap_raw_bytes_total", "counter", "Raw bytes of the compressed states.", "raw_bytes"},
    Metric{"bitsnap_stored_bytes_total", "counter", "Compressed bytes of these states.", "stored_bytes"},
    Metric{"bitsnap_encode_seconds_total", "counter", "Seconds spent compressing.", "encode_seconds"},
    Metric{"bitsnap_write_seconds_total", "counter", "Seconds spent writing to the store.", "write_seconds"},
    Metric{"bitsnap_arena_bytes", "gauge", "Memory shared with the trainer.", "arena_bytes"},
    Metric{"bitsnap_memory_bytes", "gauge", "Compressed snapshots in memory.", "memory_bytes"},
    Metric{"bitsnap_queued", "gauge", "Saves that wait for compression.", "queued"},
    Metric{"bitsnap_uncommitted", "gauge", "Shards that wait for shards of other ranks.", "uncommitted"},
    Metric{"bitsnap_last_persisted_step", "gauge", "Newest committed step.", "last_persisted_step"},
};

std::string render_prometheus(const Json& report) {
  const std::string job = report.value("job", std::string());
  std::string out;
  for (const Metric& metric : kMetrics) {
    std::string values;
    for (const Json& row : report["ranks"]) {
      const auto found = row.find(metric.key);
      if (found == row.end() || !found->is_number()) continue;
      values += fmt::format("{}{{job=\"{}\",rank=\"{}\"}} {}\n", metric.name, job, row["rank"].dump(), found->dump());
    }
    if (!values.empty()) {
      out += fmt::format("# HELP {} {}\n# TYPE {} {}\n{}", metric.name, metric.help, metric.name, metric.type, values);
    }
  }
  out += fmt::format(
      "# HELP bitsnap_agent_resident_bytes Memory of the agent.\n# TYPE bitsnap_agent_resident_bytes gauge\n"
      "bitsnap_agent_resident_bytes{{job=\"{}\"}} {}\n",
      job, number(report, "resident_bytes"));
  return out;
}

Result<int> status(const AgentCommandOptions& options, const CommonOptions& common) {
  BITSNAP_ASSIGN(const std::string job, job_of(options));
  BITSNAP_ASSIGN(const std::string text, explained(agent_status(job, kStatusMs), options));
  Json report = Json::parse(text, nullptr, false);
  if (!report.is_object() || !report.contains("ranks")) {
    return fail(ErrorKind::corrupt, "the agent's report is not valid for this version of bitsnap");
  }
  report["mirror"] = noted_copy(report);
  if (options.prometheus) {
    print_exact(render_prometheus(report));
  } else if (common.json) {
    print_json(report);
  } else {
    print_result(render(report, common.table_width()));
  }
  return kExitOk;
}

void add_job_options(CLI::App& app, AgentCommandOptions& options) {
  app.add_option("RUN", options.store, "The store that the trainers save to")->type_name("");
  app.add_option("--job", options.job, "The name of the job, if the trainers set one")->type_name("NAME");
}

}  // namespace

Command add_agent(CLI::App& program, const CommonOptions& common) {
  auto [app, options] = new_command<AgentCommandOptions>(
      program, kRunsGroup, "agent", "Run, show or stop the agent, which compresses and keeps the states of a training");
  app->require_subcommand(1);
  constexpr const char* kCommands = "Commands";
  CLI::App* show = app->add_subcommand("status", "Show what the agent of a job keeps and does");
  add_job_options(*show, *options);
  show->add_flag("--prometheus", options->prometheus, "Print metrics for Prometheus");
  CLI::App* end = app->add_subcommand("stop", "Stop the agent of a job after it has persisted all staged states");
  add_job_options(*end, *options);
  end->add_flag("--abandon", options->abandon, "Discard the states that are not being written yet");
  constexpr std::chrono::seconds kMostWait{86'400};
  add_seconds_option(*end, "--wait", options->wait, kMostWait, "How long to wait until the agent has ended [600]");
  CLI::App* serve = app->add_subcommand("run", "Run as the agent of a job; trainers start an agent by themselves");
  add_job_options(*serve, *options);
  add_seconds_option(*serve, "--hello", options->hello, kMostWait, "End if no trainer connects within this time [60]");
  serve->add_flag("--full-speed", options->full_speed, "Do not lower the priority of the agent");
  for (CLI::App* each : {show, end, serve}) {
    each->group(kCommands);
    each->fallthrough();  // to the common options
    each->get_option("RUN")->excludes("--job");
  }
  app->footer(
      "The first trainer of a job starts an agent. The agent ends by itself when no trainer needs it any more.");
  return {app, [options, &common, show, end]() -> Result<int> {
            if (show->parsed()) return status(*options, common);
            return end->parsed() ? stop(*options, common) : run(*options, common);
          }};
}

}  // namespace bitsnap::cli
