// RUN and RUN@STEP on the command line.
#include "cli/input/run_path.hpp"

#include <algorithm>
#include <system_error>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <bitsnap/engine.hpp>
#include <bitsnap/object_store.hpp>
#include <bitsnap/safetensors.hpp>

#include "cli/closest_name.hpp"
#include "cli/command.hpp"
#include "cli/file_paths.hpp"
#include "cli/input/references.hpp"
#include "cli/number_option.hpp"
#include "cli/operating_system.hpp"

namespace bitsnap::cli {

namespace fs = std::filesystem;

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kMostBeside = 1000;  // files that a mistyped name is compared with
constexpr std::size_t kMostNamed = 3;
constexpr int kOpenNewest = 16;              // attempts, while the newest checkpoint keeps changing
constexpr std::uint64_t kWaitSliceMs = 100;  // the longest that an interrupt goes unseen

bool is_there_but_no_directory(const std::string& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  return fs::exists(status) && !fs::is_directory(status);
}

// The step of the checkpoint with this label. What is no label may be "latest", or "-2": the one before the newest.
Result<std::uint64_t> find_labelled(const std::string& run, const std::string& label) {
  if (label.empty()) {
    return fail(ErrorKind::invalid_argument,
                fmt::format("{}@: expected a step or a label after the @, as in {}@1000", run, run));
  }
  BITSNAP_ASSIGN(const auto store, open_to_read(run));
  auto found = store->find(label);
  if (found || found.error().kind() != ErrorKind::not_found) return found;
  if (label == "latest") return newest_step(*store, run);
  const auto back = label.front() == '-' ? parse_decimal(label.substr(1)) : std::nullopt;
  if (!back || *back == 0) return found;
  BITSNAP_ASSIGN(const auto steps, store->steps());
  if (*back <= steps.size()) return steps[steps.size() - static_cast<std::size_t>(*back)];
  return fail(ErrorKind::not_found, fmt::format("{}@{}: the run has {} checkpoints", run, label, steps.size()));
}

Result<OpenCheckpoint> open_step(const Store& store, const std::string& run, std::uint64_t step,
                                 std::optional<std::uint64_t> shard, bool partial) {
  BITSNAP_ASSIGN(auto info, store.checkpoint(step));
  if (info.damage && info.shards == 0) return tl::unexpected(*info.damage);
  const std::string name = checkpoint_name(run, step);
  if (!shard && info.shards > 1) {
    return fail(ErrorKind::invalid_argument, fmt::format("{}: has {} shards; choose one with --shard 0 to --shard {}",
                                                         name, info.shards, info.shards - 1));
  }
  if (shard && *shard >= info.shards) {
    return fail(ErrorKind::not_found,
                fmt::format("{}: has no shard {}; it has {} shards, counted from 0", name, *shard, info.shards));
  }
  OpenCheckpoint checkpoint{run, std::move(info), static_cast<std::uint32_t>(shard.value_or(0)), nullptr};
  BITSNAP_ASSIGN(checkpoint.snapshot, store.snapshot(step, checkpoint.shard, partial));
  return checkpoint;
}

// Whether a step was made in the save that a reference names. The word is in the record of a checkpoint of several
// ranks, and otherwise in the metadata of the snapshot. Damage is for the command to find.
bool is_of(const Store& store, const ReferencedSave& save) {
  if (save.word.empty()) return true;
  const auto info = store.checkpoint(save.step);
  if (info && saved_word(info->metadata) == save.word) return true;
  const auto snapshot = store.snapshot(save.step);
  return !snapshot || saved_word((*snapshot)->metadata()) == save.word;
}

// The run that a reference names is where it says, or, if the reference is a link, where what it links to says.
Result<RunPath> follow(const Reference& reference) {
  if (reference.saves.empty()) {
    return fail(ErrorKind::corrupt, fmt::format("{}: {}", reference.path, describe(reference)));
  }
  if (reference.version > 0) {
    return fail(ErrorKind::unsupported,
                fmt::format("{}: has version {}; this program reads version 0", reference.path, reference.version));
  }
  std::error_code error;
  if (const fs::path real = fs::canonical(reference.path, error); !error && !is_store(reference.run)) {
    BITSNAP_ASSIGN(const auto linked, read_reference(real.string()));
    if (linked && linked->run != reference.run && is_store(linked->run)) return follow(*linked);
  }
  if (!is_store(reference.run)) {
    return fail(ErrorKind::not_found,
                fmt::format("{}: {}, but no run is there; copy or move a checkpoint together with its run",
                            reference.path, describe(reference)));
  }
  BITSNAP_ASSIGN(const auto store, open_to_read(reference.run));
  if (store->run_id() != reference.run_id) {
    return fail(ErrorKind::not_found,
                fmt::format("{}: {}, but another run is there: expected the id {}, found {}", reference.path,
                            describe(reference), reference.run_id, store->run_id()));
  }
  BITSNAP_ASSIGN(const auto steps, store->steps());
  for (const ReferencedSave& save : reference.saves) {
    if (std::ranges::binary_search(steps, save.step) && is_of(*store, save)) return RunPath{reference.run, save.step};
  }
  return fail(ErrorKind::not_found,
              fmt::format("{}: {}, which has no such checkpoint any more", reference.path, describe(reference)));
}

}  // namespace

namespace {

// not_found if the text names a branch that its run does not have.
Result<void> check_branch(const std::string& text) {
  const std::size_t colon = text.rfind(':');
  std::error_code error;
  if (colon == std::string::npos || fs::exists(text, error)) return {};
  return resolve_branch(text.substr(0, text.find('@', colon))).map([](const std::string&) {});
}

}  // namespace

Result<std::optional<RunPath>> find_run(const std::string& text) {
  if (is_store(text)) return RunPath{text, std::nullopt};
  BITSNAP_ASSIGN(const auto reference, read_reference(text));
  if (reference) return follow(*reference);
  if (is_there_but_no_directory(text)) return std::nullopt;
  // Both the path of a run and a label may contain an '@'.
  for (std::size_t at = text.rfind('@'); at != std::string::npos && at > 0; at = text.rfind('@', at - 1)) {
    if (!is_store(text.substr(0, at))) continue;
    RunPath path{text.substr(0, at), parse_decimal(text.substr(at + 1))};
    if (!path.step) {
      BITSNAP_ASSIGN(path.step, find_labelled(path.run, text.substr(at + 1)));
    }
    return path;
  }
  BITSNAP_TRY(check_branch(text));
  return std::nullopt;
}

Result<void> check_is_there(const std::string& text) {
  std::error_code error;
  if (fs::exists(fs::symlink_status(text, error)) || text.find("://") != std::string::npos) return {};
  const std::string path = without_slash(text.substr(0, text.rfind('@')));
  if (path != text && is_store(path)) return {};
  const fs::path above = fs::path(path).parent_path();
  std::vector<std::string> beside;
  std::vector<std::string> runs;
  for (fs::directory_iterator it(above.empty() ? "." : above, error), end;
       !error && it != end && beside.size() < kMostBeside; it.increment(error)) {
    beside.push_back(it->path().filename().string());
    if (runs.size() < kMostNamed && is_store(it->path().string())) runs.push_back((above / beside.back()).string());
  }
  std::ranges::sort(beside);
  const std::string part = text.substr(std::min(text.rfind('@'), text.size()));
  const auto meant = closest_name(file_name(path), beside);
  std::string advice;
  if (meant) advice = fmt::format("; did you mean '{}{}'?", (above / *meant).string(), part);
  if (!meant && !runs.empty()) advice = fmt::format("; runs beside it: {}", fmt::join(runs, ", "));
  return fail(ErrorKind::not_found, fmt::format("{}: there is no such file or run{}", text, advice));
}

Result<std::optional<RunPath>> find_run_or_file(const std::string& text) {
  BITSNAP_ASSIGN(auto run, find_run(text));
  if (!run) BITSNAP_TRY(check_is_there(text));
  return run;
}

Result<RunPath> parse_run_path(const std::string& text) {
  BITSNAP_ASSIGN(auto found, find_run(text));
  if (found) return *found;
  if (is_there_but_no_directory(text)) {
    const auto kind = detect_file_kind(text);
    const bool is_snapshot = kind && *kind == FileKind::snapshot;
    return fail(
        ErrorKind::invalid_argument,
        fmt::format("{}: is a {}, and no run; {}", text, is_snapshot ? "snapshot" : "file",
                    is_snapshot ? "`bitsnap decompress` restores what it was made from"
                                : "`bitsnap inspect` shows its tensors, and `bitsnap add RUN` stores it in a run"));
  }
  std::error_code error;
  const std::size_t at = text.rfind('@');
  if (at != std::string::npos && at != 0 && !fs::exists(text, error)) {
    if (const auto step = parse_decimal(text.substr(at + 1))) return RunPath{text.substr(0, at), step};
  }
  return RunPath{text, std::nullopt};
}

Result<void> check_no_run(const std::string& text) {
  if (!is_store(text)) {
    BITSNAP_ASSIGN(const auto reference, read_reference(text));
    if (reference && !reference->saves.empty()) {
      return fail(
          ErrorKind::invalid_argument,
          fmt::format("{}: {}, and is no checkpoint itself; `bitsnap add RUN {} --step {}` copies the checkpoint "
                      "to another run, and `bitsnap extract {}` writes it",
                      text, describe(*reference), text, reference->saves.front().step, text));
    }
  }
  const auto run = find_run(text);
  if (!run || !*run) {
    return {};  // opening it explains what else is wrong
  }
  return fail(ErrorKind::invalid_argument,
              fmt::format("{}: is {}, not a file; `bitsnap extract {}` writes {} as a safetensors file", text,
                          (*run)->step ? "a checkpoint of a run" : "a run", text,
                          (*run)->step ? "it" : "its newest checkpoint"));
}

Result<void> check_whole_run(const std::string& text) {
  if (!is_store(text)) {
    BITSNAP_ASSIGN(const auto reference, read_reference(text));
    if (reference) {
      return fail(ErrorKind::invalid_argument,
                  fmt::format("{}: {}, but this command needs the run itself", text, describe(*reference)));
    }
  }
  BITSNAP_TRY(check_branch(text));
  const auto run = find_run(text);
  if (!run || !*run || !(*run)->step) return {};
  return fail(ErrorKind::invalid_argument,
              fmt::format("{}: names one checkpoint, but this command needs the run: {}", text, (*run)->run));
}

std::string checkpoint_name(const std::string& run, std::uint64_t step) { return fmt::format("{}@{}", run, step); }

namespace {

fs::path named_folder(const std::string& path) {
  fs::path folder = fs::path(path).lexically_normal();
  if (!folder.has_filename()) folder = folder.parent_path();
  return folder.empty() || folder.filename() == "." || folder.filename() == ".." ? resolve_path(path) : folder;
}

}  // namespace

std::string run_of_branch(const std::string& run) {
  if (is_object_path(run)) return run;
  const std::string path = resolve_branch(run).value_or(run);
  const fs::path branches = named_folder(path).parent_path();
  const std::string above = branches.parent_path().string();
  return branches.filename() == "branches" && is_store(above) ? above : path;
}

fs::path run_folder(const std::string& run) {
  if (is_object_path(run)) return fs::path(without_slash(run)).filename();
  const std::string path = resolve_branch(run).value_or(run);
  const std::string whole = run_of_branch(path);
  if (whole == path) return named_folder(path);
  fs::path folder = named_folder(whole);
  folder += "-" + named_folder(path).filename().string();
  return folder;
}

std::string run_name(const std::string& run) { return run_folder(run).filename().string(); }

Result<std::uint64_t> newest_step(const Store& store, const std::string& run) {
  BITSNAP_ASSIGN(const auto newest, store.latest());
  if (newest) return *newest;
  BITSNAP_ASSIGN(const auto steps, store.steps());
  return fail(ErrorKind::not_found, steps.empty() ? fmt::format("{}: has no checkpoint yet", run)
                                                  : fmt::format("{}: every checkpoint is damaged; the newest is {}",
                                                                run, checkpoint_name(run, steps.back())));
}

Result<OpenCheckpoint> open_checkpoint(const RunPath& path, std::optional<std::uint64_t> shard, bool partial) {
  BITSNAP_ASSIGN(auto store, open_to_read(path.run));
  if (path.step) return open_step(*store, path.run, *path.step, shard, partial);
  for (int attempt = 1;; ++attempt) {
    BITSNAP_ASSIGN(const std::uint64_t newest, newest_step(*store, path.run));
    auto opened = open_step(*store, path.run, newest, shard, partial);
    // A writer may have removed or replaced the newest checkpoint since.
    if (opened || opened.error().kind() != ErrorKind::not_found || attempt == kOpenNewest) return opened;
  }
}

Result<std::unique_ptr<Store>> open_to_read(const std::string& run) {
  BITSNAP_TRY(check_whole_run(run));
  StoreOptions options;
  options.access = StoreAccess::read;
  options.create = false;
  return Store::open(run, options);
}

Result<std::unique_ptr<Store>> open_to_write(const std::string& run, StoreOptions options,
                                             std::chrono::milliseconds wait) {
  BITSNAP_TRY(check_whole_run(run));
  // The library's own waiting cannot be interrupted.
  const auto until = Clock::now() + wait;
  options.access = StoreAccess::write;
  while (true) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now()).count();
    options.timeout_ms = std::min(kWaitSliceMs, static_cast<std::uint64_t>(std::max<std::int64_t>(0, left)));
    auto store = Store::open(run, options);
    if (store || store.error().kind() != ErrorKind::busy) return store;
    if (options.timeout_ms == 0) {
      const std::string advice = wait.count() == 0
                                     ? "--wait SECONDS waits for it"
                                     : fmt::format("waited {:g} s for it", std::chrono::duration<double>(wait).count());
      return tl::unexpected(explain_busy(run, std::move(store).error(), advice));
    }
    if (interrupt_signal() != 0) {
      return fail(ErrorKind::cancelled, fmt::format("{}: interrupted while waiting for another writer", run));
    }
  }
}

namespace {

// Whether the "process 123" that holds a run is the agent of a training that gave its job no name.
bool is_agent_of(const std::string& run, std::string_view holder) {
  constexpr std::uint64_t kStatusMs = 1000;
  const auto status = agent_status(default_job(resolve_branch(run).value_or(run)), kStatusMs);
  const Json report = status ? Json::parse(*status, nullptr, false) : Json();
  return report.is_object() && report.contains("process") &&
         holder == fmt::format("process {}", report["process"].dump());
}

}  // namespace

Error explain_busy(const std::string& run, Error error, std::string_view advice) {
  // "lock (exclusive) RUN/lock: process 123 holds it (exclusive)"
  const std::string_view message = error.message();
  const std::size_t end = message.rfind(" holds it");
  const std::size_t start = message.substr(0, end).rfind(": ");
  if (error.kind() != ErrorKind::busy || end == std::string_view::npos || start == std::string_view::npos) return error;
  const std::string_view holder = message.substr(start + 2, end - start - 2);
  if (is_agent_of(run, holder)) {
    return Error(ErrorKind::busy,
                 fmt::format("{0}: {1}, the agent of a training, holds it until it has been idle for a while; `bitsnap "
                             "agent stop {0}` ends it, and a training that continues starts another one with its next "
                             "save; {2}",
                             run, holder, advice));
  }
  return Error(ErrorKind::busy, fmt::format("{}: {} is writing to it; {}", run, holder, advice));
}

Result<void> check_in_no_run(const std::string& path) {
  for (fs::path folder = resolve_path(path); folder.has_relative_path(); folder = folder.parent_path()) {
    if (is_store(folder.string())) {
      return fail(ErrorKind::invalid_argument,
                  fmt::format("{}: lies in the run {}, whose files are no checkpoints of a training; `bitsnap extract "
                              "{}@STEP` writes one of its checkpoints",
                              path, folder.string(), folder.string()));
    }
  }
  return {};
}

Result<void> check_outside(const std::string& run, const std::string& path) {
  const fs::path folder = resolve_path(run_of_branch(run));
  const fs::path file = resolve_path(path);
  const auto [end, rest] = std::mismatch(folder.begin(), folder.end(), file.begin(), file.end());
  if (end == folder.end()) {
    return fail(ErrorKind::invalid_argument,
                fmt::format("{}: lies in the run {}, which may contain only checkpoints", path, run));
  }
  return {};
}

}  // namespace bitsnap::cli
