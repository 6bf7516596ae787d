#include "cli/watch/raw_inputs.hpp"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include <bitsnap/store.hpp>

#include "cli/file_paths.hpp"
#include "cli/input/checkpoint_names.hpp"
#include "cli/input/references.hpp"
#include "cli/input/run_path.hpp"
#include "cli/operating_system.hpp"
#include "cli/watch/raw_tree.hpp"
#include "src/base/try.hpp"

namespace bitsnap::cli {

namespace {

constexpr std::string_view kExpectedNames =
    "expected a name such as checkpoint-1000, iter_0001000, step=1000.ckpt or 1000";

void sort_inputs(RawInputs& inputs) {
  for (auto* list : {&inputs.checkpoints, &inputs.deleting, &inputs.gone}) {
    std::ranges::sort(*list, {}, [](const RawCheckpoint& each) { return std::tie(each.step, each.path); });
    const auto is_same = [](const RawCheckpoint& a, const RawCheckpoint& b) { return a.path == b.path; };
    list->erase(std::unique(list->begin(), list->end(), is_same), list->end());
  }
}

// A path that nobody finds: an earlier call deleted it, or did not finish to.
Result<void> add_missing(const std::string& path, std::optional<std::uint64_t> step, RawInputs& inputs) {
  if (!step) return fail(ErrorKind::not_found, fmt::format("{}: does not exist", path));
  const std::string hidden = deleting_path(path);
  BITSNAP_ASSIGN(const auto left, read_facts(hidden));
  if (left) {
    inputs.deleting.push_back({hidden, *step});
  } else {
    inputs.gone.push_back({path, *step});
  }
  return {};
}

Result<void> add_path(const std::string& path, RawInputs& inputs) {
  const auto step = step_of_name(run_name(path));
  BITSNAP_ASSIGN(const auto facts, read_facts(path));
  if (!facts) return add_missing(path, step, inputs);
  if (facts->kind == NodeKind::symbolic_link) {
    return fail(ErrorKind::invalid_argument, fmt::format("{}: is a symbolic link; name what it leads to", path));
  }
  if (step) {
    inputs.checkpoints.push_back({path, *step});
    return {};
  }
  if (facts->kind != NodeKind::directory) {
    return fail(ErrorKind::invalid_argument, fmt::format("{}: its name has no step; {}", path, kExpectedNames));
  }
  BITSNAP_ASSIGN(RawInputs children, list_checkpoints(path));
  if (children.checkpoints.empty() && children.deleting.empty()) inputs.empty.push_back(path);
  std::ranges::move(children.checkpoints, std::back_inserter(inputs.checkpoints));
  std::ranges::move(children.deleting, std::back_inserter(inputs.deleting));
  std::ranges::move(children.skipped, std::back_inserter(inputs.skipped));
  return {};
}

Result<void> skip_held_elsewhere(RawInputs& inputs) {
  std::vector<RawCheckpoint> checkpoints;
  for (RawCheckpoint& each : inputs.checkpoints) {
    BITSNAP_ASSIGN(auto held, find_reason_to_skip(each.path));
    if (held) {
      inputs.skipped.push_back({std::move(each.path), each.step, *std::move(held)});
    } else {
      checkpoints.push_back(std::move(each));
    }
  }
  inputs.checkpoints = std::move(checkpoints);
  return {};
}

}  // namespace

Result<void> check_none_empty(const RawInputs& inputs) {
  if (inputs.empty.empty()) return {};
  return fail(ErrorKind::invalid_argument, fmt::format("{}: its name has no step, and it contains no checkpoint; {}",
                                                       inputs.empty.front(), kExpectedNames));
}

Result<RawInputs> list_checkpoints(const std::string& directory) {
  RawInputs inputs;
  BITSNAP_ASSIGN(const std::vector<std::string> names, list_names(directory));
  for (const std::string& name : names) {
    const std::string path = (std::filesystem::path(directory) / name).string();
    if (const auto deleting = name_of_deleting(name)) {
      if (const auto step = step_of_name(*deleting)) inputs.deleting.push_back({path, *step});
      continue;
    }
    const auto step = step_of_name(name);
    // What vanished since is no checkpoint.
    const auto facts = read_facts(path);
    if (!facts || !*facts) continue;
    const NodeKind kind = (*facts)->kind;
    if (!step) {
      if (kind == NodeKind::directory && !is_unfinished_name(name) && !is_store(path)) {
        inputs.skipped.push_back({path, step, "its name has no step"});
      }
    } else if (kind == NodeKind::symbolic_link) {
      inputs.skipped.push_back({path, step, "it is a symbolic link"});
    } else if (is_store(path)) {
      inputs.skipped.push_back({path, step, "it is a run"});
    } else if (kind == NodeKind::file || kind == NodeKind::directory) {
      inputs.checkpoints.push_back({path, *step});
    }
  }
  sort_inputs(inputs);
  return inputs;
}

Result<RawInputs> find_raw_inputs(const std::vector<std::string>& paths) {
  RawInputs inputs;
  for (const std::string& path : paths) {
    BITSNAP_TRY(check_no_run(path));
    BITSNAP_TRY(check_in_no_run(path));
    BITSNAP_TRY(add_path(without_slash(path), inputs));
  }
  sort_inputs(inputs);
  BITSNAP_TRY(skip_held_elsewhere(inputs));
  const auto& found = inputs.checkpoints;
  const auto same = std::ranges::adjacent_find(found, {}, &RawCheckpoint::step);
  if (same != found.end()) {
    return fail(ErrorKind::invalid_argument, fmt::format("{} and {}: both have step {}; ingest one of them, or rename",
                                                         same->path, (same + 1)->path, same->step));
  }
  return inputs;
}

}  // namespace bitsnap::cli
