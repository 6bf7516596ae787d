// Finding the states that `analyze` reads.
#include "cli/analysis/analyze_report.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include <bitsnap/folder.hpp>

#include "cli/command.hpp"
#include "cli/file_paths.hpp"
#include "cli/input/training_input.hpp"

namespace bitsnap::cli {

namespace {

StatePlace checkpoint_place(const std::string& run, std::uint64_t step) {
  return {checkpoint_name(run, step), RunPath{run, step}, {}};
}

// Evenly spread indices with the first and the last one; for one, the last.
std::vector<std::size_t> spread(std::size_t count, std::uint64_t wanted) {
  std::vector<std::size_t> chosen;
  if (wanted >= count) wanted = count;
  for (std::uint64_t i = 0; i < wanted; ++i) {
    chosen.push_back(wanted == 1 ? count - 1 : static_cast<std::size_t>(i * (count - 1) / (wanted - 1)));
  }
  return chosen;
}

// Steps without damage, ascending.
Result<std::vector<std::uint64_t>> readable_steps(const std::string& run) {
  BITSNAP_ASSIGN(auto store, open_to_read(run));
  BITSNAP_ASSIGN(auto checkpoints, store->checkpoints());
  std::vector<std::uint64_t> steps;
  for (const Checkpoint& info : checkpoints) {
    if (!info.damage) steps.push_back(info.step);
  }
  if (steps.empty()) {
    return fail(ErrorKind::not_found,
                fmt::format("{}: has no checkpoint{}", run, checkpoints.empty() ? " yet" : " that can be read"));
  }
  return steps;
}

Result<std::vector<StatePair>> find_in_run(const RunPath& path, std::uint64_t wanted) {
  BITSNAP_ASSIGN(auto steps, readable_steps(path.run));
  std::vector<StatePair> pairs;
  const auto add = [&](std::uint64_t step) {
    StatePair pair{checkpoint_place(path.run, step), std::nullopt};
    const auto after = std::ranges::lower_bound(steps, step);
    if (after != steps.begin()) pair.earlier = checkpoint_place(path.run, *(after - 1));
    pairs.push_back(std::move(pair));
  };
  if (path.step) {
    add(*path.step);
    return pairs;
  }
  for (const std::size_t i : spread(steps.size(), wanted)) add(steps[i]);
  return pairs;
}

Result<StatePlace> find_place(const std::string& path, const std::vector<std::string>& all) {
  BITSNAP_ASSIGN(auto run, find_run_or_file(path));
  if (!run) return StatePlace{path, std::nullopt, all};
  if (run->step) return checkpoint_place(run->run, *run->step);
  return readable_steps(run->run).map(
      [&](const std::vector<std::uint64_t>& steps) { return checkpoint_place(run->run, steps.back()); });
}

Result<TensorFile> open_state(const StatePlace& place, std::optional<std::uint64_t> shard) {
  if (!place.run) return open_tensors(place.path, {.base_paths = place.bases});
  BITSNAP_ASSIGN(WholeCheckpoint checkpoint, open_whole(*place.run, shard));
  if (checkpoint.tensors == nullptr) return tensors_of(std::move(checkpoint.snapshots.front()));
  BITSNAP_ASSIGN(TrainingState training, training_state(checkpoint.snapshots, *checkpoint.tensors));
  TensorFile file = tensors_of(std::move(training.state));
  if (!is_folder(*checkpoint.snapshots.front())) {
    file.checkpoint = std::make_shared<const WholeCheckpoint>(std::move(checkpoint));
  }
  return file;
}

Result<TensorFile> open_by_training_names(const StatePlace& place, std::optional<std::uint64_t> shard) {
  BITSNAP_ASSIGN(TrainingInput input, open_training(place.path, place.bases, shard));
  return tensors_of(std::move(input.training.state));
}

// Whether the tensors have the names of a training already.
bool is_state(const TensorFile& file) {
  return file.checkpoint != nullptr || (file.snapshot != nullptr && !is_folder(*file.snapshot));
}

}  // namespace

std::string StatePlace::label() const { return run ? fmt::format("{}", *run->step) : file_name(path); }

Result<std::vector<StatePair>> find_states(const AnalyzeArguments& arguments) {
  BITSNAP_ASSIGN(auto run, find_run_or_file(arguments.paths.front()));
  const bool is_run = arguments.paths.size() == 1 && run && !run->step;
  if (arguments.steps && !is_run) {
    return fail(ErrorKind::invalid_argument,
                fmt::format("--steps needs exactly one run, but {} {}", arguments.paths.front(),
                            arguments.paths.size() > 1 ? "is not the only path"
                            : run                      ? "names one checkpoint"
                                                       : "is not a run"));
  }
  if (arguments.paths.size() == 1 && run) return find_in_run(*run, arguments.steps.value_or(1));
  std::vector<std::string> files;
  for (const std::string& path : arguments.paths) {
    const auto other = find_run(path);
    if (other && !*other) files.push_back(path);
  }
  std::vector<StatePair> pairs;
  for (const std::string& path : arguments.paths) {
    BITSNAP_ASSIGN(auto place, find_place(path, files));
    StatePair pair{std::move(place), std::nullopt};
    if (!pairs.empty()) pair.earlier = pairs.back().state;
    pairs.push_back(std::move(pair));
  }
  return pairs;
}

Result<OpenPair> open_pair(const StatePair& pair, std::optional<std::uint64_t> shard) {
  OpenPair opened;
  BITSNAP_ASSIGN(opened.state, open_state(pair.state, shard));
  if (pair.earlier) {
    BITSNAP_ASSIGN(opened.earlier, open_state(*pair.earlier, shard));
  }
  if (is_state(opened.state) && (!opened.earlier || is_state(*opened.earlier))) return opened;
  const Snapshot* state = opened.state.snapshot.get();
  const Snapshot* earlier = opened.earlier ? opened.earlier->snapshot.get() : state;
  if (state != nullptr && earlier != nullptr && is_folder(*state) == is_folder(*earlier)) return opened;
  BITSNAP_ASSIGN(opened.state, open_by_training_names(pair.state, shard));
  if (pair.earlier) {
    BITSNAP_ASSIGN(opened.earlier, open_by_training_names(*pair.earlier, shard));
  }
  return opened;
}

}  // namespace bitsnap::cli
