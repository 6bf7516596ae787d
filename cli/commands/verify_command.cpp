// `bitsnap verify`: reads every byte of snapshots and runs, and reports each damage.
#include <algorithm>
#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include <bitsnap/safetensors.hpp>
#include <bitsnap/snapshot.hpp>
#include <bitsnap/store.hpp>

#include "cli/command.hpp"
#include "cli/file_paths.hpp"
#include "cli/input/checkpoint_input.hpp"
#include "cli/input/run_path.hpp"
#include "cli/output/progress_bar.hpp"
#include "cli/output/store_damage.hpp"
#include "cli/text_format.hpp"

namespace bitsnap::cli {

namespace {

struct VerifyOptions {
  std::vector<std::string> files;
  std::vector<std::string> bases;
  bool no_decode = false;
};

// Of one argument.
struct Report {
  std::string path;            // as the user named it
  std::optional<Error> error;  // it could not be opened, or verification could not go on
  double seconds = 0;
};

// `verify` fills the report in, and returns its error.
template <typename Kind, typename Verify>
Kind make_report(const std::string& path, const Verify& verify) {
  Kind report;
  report.path = path;
  const auto start = std::chrono::steady_clock::now();
  if (Result<void> done = verify(report); !done) report.error = std::move(done).error();
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return report;
}

std::string render_failure(const Report& report) {
  return fmt::format("{}: FAILED [{}]: {}\n", printable(report.path), error_kind_name(report.error->kind()),
                     printable(report.error->message()));
}

// ---- files

struct FileReport : Report {
  std::vector<Damage> damages;
  std::string id;
  std::uint64_t file_bytes = 0;
  std::uint64_t raw_bytes = 0;
  std::uint64_t tensors = 0;
  std::uint64_t chunks = 0;

  [[nodiscard]] bool ok() const noexcept { return !error && damages.empty(); }
  [[nodiscard]] ErrorKind kind() const noexcept { return error ? error->kind() : damages.front().error.kind(); }
};

Result<void> verify_file(const VerifyOptions& options, const CommonOptions& common, FileReport& report) {
  if (const auto kind = detect_file_kind(report.path); kind && *kind == FileKind::safetensors) {
    return fail(ErrorKind::invalid_argument,
                fmt::format("{}: is a safetensors file, which has no hashes to verify; `bitsnap add` and `bitsnap "
                            "compress` store it with hashes",
                            report.path));
  }
  BITSNAP_ASSIGN(const auto snapshot, open_snapshot(report.path, {.base_paths = options.bases}));
  report.id = snapshot->id().to_hex();
  report.file_bytes = snapshot->file_bytes();
  report.tensors = snapshot->tensors().size();
  for (const StreamInfo& stream : snapshot->streams()) {
    report.chunks += stream.chunk_count();
    report.raw_bytes += stream.elements * element_size(stream.dtype);
  }
  ProgressBar bar(file_name(report.path), !common.quiet);
  BITSNAP_ASSIGN(report.damages, snapshot->verify(!options.no_decode, bar.run(common)));
  return {};
}

void print_report(const FileReport& report, const VerifyOptions& options, const CommonOptions& common) {
  const std::string path = printable(report.path);
  if (report.ok()) {
    if (common.quiet) return;
    std::string line = path + ": OK";
    if (common.verbose) {
      // Without decoding, only the bytes of the file were read.
      const std::uint64_t bytes = options.no_decode ? report.file_bytes : report.raw_bytes;
      line += fmt::format("  ({}, {}, {}, {}; id {})", format_plural(report.tensors, "tensor"),
                          format_plural(report.chunks, "chunk"), format_size(bytes),
                          format_speed(bytes, report.seconds), report.id);
    }
    print_result(line + '\n');
    return;
  }
  if (report.error) {
    print_result(render_failure(report));
    return;
  }
  print_result(fmt::format("{}: {}\n", path, format_plural(report.damages.size(), "damage")));
  for (const Damage& damage : report.damages) {
    print_result(fmt::format("  {} [{}]: {}\n", printable(damage.where), error_kind_name(damage.error.kind()),
                             printable(damage.error.message())));
  }
}

void to_json(Json& json, const FileReport& report) {
  json = {{"path", report.path}, {"ok", report.ok()}};
  if (report.error) json["error"] = *report.error;
  if (!report.id.empty()) {
    json["id"] = report.id;
    json["file_bytes"] = report.file_bytes;
    json["raw_bytes"] = report.raw_bytes;
    json["tensors"] = report.tensors;
    json["chunks"] = report.chunks;
    json["seconds"] = report.seconds;
  }
  json["damages"] = Json::array();
  for (const Damage& damage : report.damages) {
    json["damages"].push_back(
        {{"where", damage.where}, {"kind", error_kind_name(damage.error.kind())}, {"message", damage.error.message()}});
  }
}

// ---- runs

struct RunReport : Report {
  std::string run;
  std::map<std::uint64_t, std::vector<StoreDamage>> checkpoints;  // by step; empty lists are whole checkpoints
  std::uint64_t bytes = 0;
  std::vector<std::string> strays;

  [[nodiscard]] std::size_t damaged() const noexcept {
    return static_cast<std::size_t>(
        std::ranges::count_if(checkpoints, [](const auto& entry) { return !entry.second.empty(); }));
  }
  [[nodiscard]] bool ok() const noexcept { return !error && damaged() == 0; }
  // Of the first failure. Precondition: !ok().
  [[nodiscard]] ErrorKind kind() const noexcept {
    if (error) return error->kind();
    const auto first = std::ranges::find_if(checkpoints, [](const auto& entry) { return !entry.second.empty(); });
    return first->second.front().error.kind();
  }
};

// The store's report does not list the verified steps: they are the steps that exist before and after it.
Result<void> verify_store(const Store& store, const StoreVerifyOptions& options, RunReport& report) {
  BITSNAP_ASSIGN(auto steps, options.steps.empty() ? store.steps() : options.steps);
  BITSNAP_ASSIGN(auto verification, store.verify(options));
  BITSNAP_ASSIGN(auto still, store.steps());
  for (const std::uint64_t step : steps) {
    if (std::binary_search(still.begin(), still.end(), step)) report.checkpoints[step];
  }
  for (StoreDamage& damage : verification.damages) report.checkpoints[damage.step].push_back(std::move(damage));
  report.bytes = verification.bytes;
  report.strays = std::move(verification.strays);
  return {};
}

Result<void> verify_run(const RunPath& run, bool decode, const CommonOptions& common, RunReport& report) {
  report.run = run.run;
  BITSNAP_ASSIGN(const auto store, open_to_read(run.run));
  ProgressBar bar(run_name(run.run), !common.quiet);
  StoreVerifyOptions options;
  options.decode = decode;
  options.run = bar.run(common);
  if (run.step) {
    // A step that does not exist is a mistake of the user, not a damage.
    const auto info = store->checkpoint(*run.step);
    if (!info && info.error().kind() == ErrorKind::not_found) return tl::unexpected(info.error());
    options.steps.push_back(*run.step);
  }
  return verify_store(*store, options, report);
}

void print_report(const RunReport& report, const CommonOptions& common) {
  std::string out;
  for (const auto& [step, damages] : report.checkpoints) {
    const std::string name = printable(checkpoint_name(report.run, step));
    if (!damages.empty()) {
      out += fmt::format("{}: {}\n", name, format_plural(damages.size(), "damage")) + render_damages(damages);
    } else if (!common.quiet) {
      out += fmt::format("{}: OK\n", name);
    }
  }
  if (report.error) {
    out += render_failure(report);
  } else if (common.verbose || (report.checkpoints.empty() && !common.quiet)) {
    out += fmt::format("{}: {}, {} read, {}\n", printable(report.path),
                       format_plural(report.checkpoints.size(), "checkpoint"), format_size(report.bytes),
                       format_speed(report.bytes, report.seconds));
  }
  print_result(out);
  if (report.damaged() > 0 && report.checkpoints.size() > 1) {
    print_note(fmt::format("bitsnap: {} of {} of {} damaged; `bitsnap repair {}` repairs what it can\n",
                           format_count(report.damaged()), format_plural(report.checkpoints.size(), "checkpoint"),
                           printable(report.run), printable(report.run)));
  }
  if (!report.strays.empty() && !common.quiet) {
    const std::size_t strays = report.strays.size();
    print_note(fmt::format(
        "{}: {} to no checkpoint: a writer is running, or was killed; `bitsnap repair` recovers checkpoints "
        "without a record and removes the other files, as `bitsnap prune` does\n",
        printable(report.run),
        strays == 1 ? "1 file or folder belongs" : fmt::format("{} files or folders belong", format_count(strays))));
  }
}

void to_json(Json& json, const RunReport& report) {
  json = {{"path", report.path}, {"run", report.run}, {"ok", report.ok()}};
  if (report.error) json["error"] = *report.error;
  json["bytes"] = report.bytes;
  json["seconds"] = report.seconds;
  json["checkpoints"] = Json::array();
  for (const auto& [step, damages] : report.checkpoints) {
    json["checkpoints"].push_back({{"step", step}, {"ok", damages.empty()}, {"damages", damages}});
  }
  json["strays"] = report.strays;
}

// ---- all arguments

class Verification {
 public:
  Verification(const VerifyOptions& options, const CommonOptions& common) : options_(options), common_(common) {}

  // Fails only if the user interrupts; other errors are part of the report.
  Result<void> add(const std::string& path) {
    auto run = find_run_or_file(path);
    if (run && *run) {
      const auto verify = [&](RunReport& report) { return verify_run(**run, !options_.no_decode, common_, report); };
      return add(make_report<RunReport>(path, verify), runs_);
    }
    const auto verify = [&](FileReport& report) {
      return run ? verify_file(options_, common_, report) : tl::unexpected(std::move(run).error());
    };
    return add(make_report<FileReport>(path, verify), files_);
  }

  // Returns the exit status.
  int finish() {
    if (common_.json) {
      print_json({{"ok", failed_ == 0},
                  {"decoded", !options_.no_decode},
                  {"files", std::move(files_)},
                  {"runs", std::move(runs_)}});
    } else if (failed_ > 0 && options_.files.size() > 1) {
      print_note(fmt::format("bitsnap: {} of {} failed\n", failed_,
                             format_plural(options_.files.size(), has_runs_ ? "argument" : "file")));
    }
    return status_;
  }

 private:
  template <typename Report>
  Result<void> add(const Report& report, Json& list) {
    if (report.error && report.error->kind() == ErrorKind::cancelled) return tl::unexpected(*report.error);
    has_runs_ = has_runs_ || &list == &runs_;
    if (!report.ok()) {
      ++failed_;
      status_ = status_ == kExitOk ? exit_code(report.kind()) : status_;
    }
    if (common_.json) {
      list.push_back(report);
    } else {
      print(report);
    }
    return {};
  }

  void print(const FileReport& report) const { print_report(report, options_, common_); }
  void print(const RunReport& report) const { print_report(report, common_); }

  const VerifyOptions& options_;
  const CommonOptions& common_;
  Json files_ = Json::array();
  Json runs_ = Json::array();
  bool has_runs_ = false;
  std::size_t failed_ = 0;
  int status_ = kExitOk;
};

Result<int> verify(const VerifyOptions& options, const CommonOptions& common) {
  Verification verification(options, common);
  for (const std::string& path : options.files) BITSNAP_TRY(verification.add(path));
  return verification.finish();
}

}  // namespace

Command add_verify(CLI::App& program, const CommonOptions& common) {
  auto [app, options] = new_command<VerifyOptions>(program, kBothGroup, "verify",
                                                   "Read every byte of snapshots and runs, and report each damage");
  add_argument(*app, "FILE", options->files, "Snapshots, runs, or checkpoints as RUN@STEP");
  add_base_option(*app, options->bases,
                  "A snapshot, or a folder of them, that a FILE may depend on, besides those in its own folder");
  app->add_flag("--no-decode", options->no_decode, "Check the stored bytes only: faster, and needs no base");
  app->footer("The exit status is that of the first failure.");
  return {app, [options, &common] { return verify(*options, common); }};
}

}  // namespace bitsnap::cli
