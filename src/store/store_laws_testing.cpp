// The laws of a store: journalled calls and checks.
#include "store/store_laws_testing.hpp"

#include <algorithm>
#include <ranges>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/hash.hpp"
#include "base/try.hpp"
#include "store/sealed_json.hpp"
#include "store/store_impl.hpp"
#include "store/tensor_index.hpp"

namespace bitsnap::store {
namespace {

// With one thread, the same calls make the same file operations in the same order.
// seed / kStateKind is a set of bits: 1 means the same state at all steps, 2 means one more tensor.
constexpr std::uint64_t kStateKind = 1000;

std::vector<std::uint64_t> steps_of(const TestRun& run) {
  std::vector<std::uint64_t> steps;
  for (const auto& [step, content] : run) steps.push_back(step);
  return steps;
}

bool has_steps_and_labels(const TestRun& run, const TestRun& shown) {
  return std::ranges::equal(run, shown, [](const auto& a, const auto& b) {
    return a.first == b.first && a.second.labels == b.second.labels;
  });
}

std::map<std::string, std::vector<std::byte>> map_of(const std::vector<CheckpointFile>& files) {
  std::map<std::string, std::vector<std::byte>> map;
  for (const CheckpointFile& file : files) map.emplace(file.name, file.bytes);
  return map;
}

std::string check_content(const Store& store, const TestRun& run) {
  for (const auto& [step, content] : run) {
    if (std::string wrong = check_step_content(store, step, content); !wrong.empty()) return wrong;
    const auto files = store.files(step);
    if (!files) return fmt::format("files of step {}: {}", step, files.error().message());
    if (map_of(*files) != content.files) return fmt::format("step {} has other files", step);
  }
  return "";
}

std::string check_verification(const Store& store, const TestRun& run) {
  const bool has_damaged = std::ranges::any_of(run, [](const auto& entry) { return !entry.second.damaged.empty(); });
  // Retired steps that damaged ones need may be damaged, too.
  const auto is_known = [&](const StoreDamage& damage) {
    const auto found = run.find(damage.step);
    return found == run.end() ? has_damaged : !found->second.damaged.empty();
  };
  for (const bool decode : {true, false}) {
    StoreVerifyOptions options;
    options.decode = decode;
    options.run = kOneThread;
    const auto verified = store.verify(options);
    if (!verified) return "verify: " + verified.error().message();
    const auto found = std::ranges::find_if_not(verified->damages, is_known);
    if (found == verified->damages.end()) continue;
    return fmt::format("verify: {} {}: {}", found->file, found->where, found->error.message());
  }
  return "";
}

// Saves the next step and looks for strays. Adds the step to `run`.
std::string check_going_on(os::FakeFileSystem& files, TestRun& run, StoreOptions options) {
  options.access = StoreAccess::write;
  const auto store = open_store(files, kTestRun, options);
  if (!store) return "open to write: " + store.error().message();
  const auto steps = (*store)->steps();
  if (!steps || *steps != steps_of(run)) return "opening to write changed what is shown";
  const std::uint64_t next = run.empty() ? 1 : run.rbegin()->first + 1;
  const auto saved = (*store)->save(next, test_state(next, 0).state(), kOneThread);
  if (!saved) return "the next save: " + saved.error().message();
  run[next] = {};
  if (saved->damage) return "the next save found no base: " + saved->damage->message();
  Retention all;
  all.keep_last = 1'000'000;
  PruneOptions pruning;
  pruning.reencode = Reencode::never;
  pruning.run = kOneThread;
  if (const auto pruned = (*store)->prune(all, pruning); !pruned) return "prune: " + pruned.error().message();
  return check_files(files);
}

}  // namespace

std::string check_step_content(const Store& store, std::uint64_t step, const TestStep& content) {
  for (std::uint32_t shard = 0; shard < content.shards; ++shard) {
    const TestState& expected = test_state(step, content.shard_seed(shard));
    const auto snapshot = store.snapshot(step, shard, !content.damaged.empty());
    if (content.damaged.contains({shard, ""})) {
      if (snapshot) return fmt::format("step {}, shard {}: can be opened", step, shard);
      continue;
    }
    std::set<std::string> damaged;
    for (const auto& [of, name] : content.damaged) {
      if (of == shard) damaged.insert(name);
    }
    const std::string wrong = snapshot ? difference(**snapshot, expected, damaged) : snapshot.error().message();
    if (!wrong.empty()) return fmt::format("step {}, shard {}: {}", step, shard, wrong);
  }
  return "";
}

const TestState& test_state(std::uint64_t step, std::uint64_t seed) {
  static std::map<std::pair<std::uint64_t, std::uint64_t>, TestState> states;
  const auto [state, is_new] = states.try_emplace({step, seed});
  if (is_new) {
    const std::uint64_t kind = seed / kStateKind;
    state->second = TestState((kind & 1) != 0 ? 1 : step, seed);
    if ((kind & 2) != 0) state->second.add("extra", DType::u8, std::vector<std::byte>(6000, std::byte(step)));
  }
  return state->second;
}

bool Journal::open(const TestRun& shown, const std::function<bool(const TestRun&)>& has_content,
                   const std::function<bool(const TestRun&)>& may_come_back) {
  std::vector<TestRun> runs = allowed();
  const auto fits = [&](const TestRun& run) { return has_steps_and_labels(run, shown); };
  const bool is_clear = std::ranges::count_if(runs, fits) == 1;
  const auto found =
      std::ranges::find_if(runs, [&](const TestRun& run) { return fits(run) && (is_clear || has_content(run)); });
  if (found == runs.end()) return false;
  runs_ = {std::move(*found)};
  runs.erase(found);
  std::ranges::copy_if(runs, std::back_inserter(runs_), may_come_back);
  possible_.clear();
  return true;
}

void Journal::begin(const Changes& possible) {
  possible_.clear();
  for (const TestRun& run : runs_) std::ranges::move(possible(run), std::back_inserter(possible_));
}

void Journal::confirm(const Change& change, bool settles) {
  possible_.clear();
  if (settles) runs_.resize(1);
  for (TestRun& run : runs_) run = change(run);
}

std::vector<TestRun> Journal::allowed() const {
  std::vector<TestRun> all = runs_;
  std::ranges::copy(possible_, std::back_inserter(all));
  return all;
}

std::vector<TestRun> removals(const TestRun& run, const std::vector<std::uint64_t>& kept) {
  constexpr std::size_t kMostInAnyOrder = 6;  // then only from the newest on, and from the oldest on
  std::vector<std::uint64_t> gone;
  for (const std::uint64_t step : run | std::views::keys) {
    if (std::ranges::find(kept, step) == kept.end()) gone.push_back(step);
  }
  std::vector<TestRun> possible;
  if (gone.size() <= kMostInAnyOrder) {
    for (std::size_t subset = 1; subset < std::size_t{1} << gone.size(); ++subset) {
      TestRun& left = possible.emplace_back(run);
      for (std::size_t i = 0; i < gone.size(); ++i) {
        if ((subset >> i & 1) != 0) left.erase(gone[i]);
      }
    }
    return possible;
  }
  TestRun left = run;
  for (const std::uint64_t step : gone) {
    left.erase(step);
    possible.push_back(left);
  }
  left = run;
  for (const std::uint64_t step : gone | std::views::reverse) {
    left.erase(step);
    possible.push_back(left);
  }
  return possible;
}

namespace {

TestRun without_labels(TestRun run, const std::set<std::string>& labels) {
  for (auto& [step, content] : run) {
    std::erase_if(content.labels, [&](const std::string& label) { return labels.contains(label); });
  }
  return run;
}

// A step that is replaced keeps its labels.
Journal::Change adding(std::uint64_t step, const TestStep& content) {
  return [=](const TestRun& run) {
    TestRun after = without_labels(run, content.labels);
    std::set<std::string> kept = after[step].labels;
    after[step] = content;
    after[step].labels.merge(kept);
    return after;
  };
}

std::set<std::string> set_of(const std::vector<std::string>& labels) { return {labels.begin(), labels.end()}; }

// A call that makes one change, completely or not at all.
Result<void> change_once(Journal& journal, const Journal::Change& change, const std::function<Result<void>()>& call) {
  journal.begin([&](const TestRun& run) { return std::vector{change(run)}; });
  BITSNAP_TRY(call());
  journal.confirm(change, false);
  return {};
}

// A call that removes all steps but those that `kept` returns.
Result<void> remove_steps(Journal& journal, const std::function<std::vector<std::uint64_t>(const TestRun&)>& kept,
                          bool settles, const std::function<Result<void>()>& call) {
  journal.begin([&](const TestRun& run) { return removals(run, kept(run)); });
  BITSNAP_TRY(call());
  journal.confirm(
      [&](const TestRun& run) {
        const std::vector<TestRun> possible = removals(run, kept(run));
        return possible.empty() ? run : possible.back();
      },
      settles);
  return {};
}

}  // namespace

Result<void> save_to(Destination destination, Store& store, std::uint64_t step, const std::optional<ShardPlace>& place,
                     const TestState& state, const CommitOptions& commit) {
  Store::Impl& impl = Store::Impl::of(store);
  BITSNAP_ASSIGN(PendingSave save, impl.begin(step, place, nullptr, commit.replace));
  save.commit = commit;
  BITSNAP_TRY(impl.encode(save, state.state(), kOneThread, destination));
  return impl.publish(save);
}

Result<void> save_step(Store& store, Journal& journal, std::uint64_t step, std::uint64_t seed, Destination destination,
                       const CommitOptions& commit) {
  const TestStep content{seed, 1, set_of(commit.labels), map_of(commit.files)};
  return change_once(journal, adding(step, content), [&] {
    return save_to(destination, store, step, std::nullopt, test_state(step, content.shard_seed(0)), commit);
  });
}

Result<void> label_step(Store& store, Journal& journal, std::uint64_t step, const std::string& label) {
  const Journal::Change move = [&](const TestRun& run) {
    TestRun after = without_labels(run, {label});
    after[step].labels.insert(label);
    return after;
  };
  return change_once(journal, move, [&] { return store.label(step, {label}); });
}

Result<void> remove_label(Store& store, Journal& journal, const std::string& label) {
  const Journal::Change remove = [&](const TestRun& run) { return without_labels(run, {label}); };
  return change_once(journal, remove, [&] { return store.unlabel(label); });
}

Result<void> prune_steps(Store& store, Journal& journal, const Retention& retention, Reencode reencode) {
  // Computes which steps are kept once more, independently of the report.
  const auto kept = [&](const TestRun& run) {
    std::vector<std::uint64_t> steps;
    std::size_t newer = 0;
    for (auto at = run.rbegin(); at != run.rend(); ++at, ++newer) {
      if (newer == 0 || (retention.keep_last && newer < *retention.keep_last) ||
          (retention.keep_every && at->first % *retention.keep_every == 0) ||
          (retention.keep_labelled && !at->second.labels.empty()) ||
          std::ranges::find(retention.keep, at->first) != retention.keep.end()) {
        steps.push_back(at->first);
      }
    }
    return steps;
  };
  PruneOptions options;
  options.reencode = reencode;
  options.run = kOneThread;
  return remove_steps(journal, kept, true, [&]() -> Result<void> {
    BITSNAP_TRY(store.prune(retention, options));
    return {};
  });
}

Result<void> remove_named(Store& store, Journal& journal, const std::vector<std::uint64_t>& steps, Reencode reencode) {
  const auto kept = [&](const TestRun& run) {
    std::vector<std::uint64_t> others = steps_of(run);
    std::erase_if(others, [&](std::uint64_t at) { return std::ranges::find(steps, at) != steps.end(); });
    return others;
  };
  PruneOptions options;
  options.reencode = reencode;
  options.run = kOneThread;
  return remove_steps(journal, kept, true, [&]() -> Result<void> {
    BITSNAP_TRY(store.remove(steps, options));
    return {};
  });
}

Result<void> roll_back(Store& store, Journal& journal, std::uint64_t step) {
  const auto kept = [&](const TestRun& run) {
    std::vector<std::uint64_t> steps = steps_of(run);
    std::erase_if(steps, [&](std::uint64_t at) { return at > step; });
    return steps;
  };
  return remove_steps(journal, kept, false, [&]() -> Result<void> {
    BITSNAP_TRY(store.rollback(step, kOneThread));
    return {};
  });
}

Result<void> save_two_shards(Store& first, Store& second, Journal& journal, std::uint64_t step, std::uint64_t seed,
                             const std::string& attempt, Destination destination, const CommitOptions& commit) {
  const TestStep content{seed, 2, set_of(commit.labels), map_of(commit.files)};
  const Journal::Change add = adding(step, content);
  // The shards are added to the shown run, which the save makes safe first.
  const TestRun shown = journal.run();
  journal.begin([&](const TestRun& run) { return run == shown ? std::vector{add(run)} : std::vector<TestRun>(); });
  for (const std::uint32_t shard : {0U, 1U}) {
    BITSNAP_TRY(save_to(destination, shard == 0 ? first : second, step, ShardPlace{shard, 2, attempt},
                        test_state(step, content.shard_seed(shard)), commit));
  }
  BITSNAP_ASSIGN(const auto committed, second.commit(step, 2, attempt, commit));
  if (!committed) return fail(ErrorKind::internal, "both shards are there, and commit() finds only one");
  journal.confirm(add, true);
  return {};
}

std::function<bool(const TestRun&)> content_of(const Store& store) {
  return [&store](const TestRun& run) { return check_content(store, run).empty(); };
}

Result<TestRun> shown_run(const Store& store) {
  BITSNAP_ASSIGN(const std::vector<std::uint64_t> steps, store.steps());
  BITSNAP_ASSIGN(const std::vector<StepLabel> labels, store.labels());
  TestRun run;
  for (const std::uint64_t step : steps) run[step] = {};
  for (const StepLabel& label : labels) run[label.step].labels.insert(label.label);
  return run;
}

Result<std::vector<std::uint64_t>> shown_steps(os::FileSystem& files) {
  const auto store = open_store(files, kTestRun, {});
  if (!store && store.error().kind() == ErrorKind::not_found) return std::vector<std::uint64_t>();
  if (!store) return tl::unexpected(store.error());
  return (*store)->steps();
}

std::string check_shown(os::FileSystem& files, const std::vector<TestRun>& allowed, TestRun* found) {
  const auto steps = shown_steps(files);
  if (!steps) return "open to read: " + steps.error().message();
  TestRun shown;
  if (!steps->empty()) {
    const auto store = open_store(files, kTestRun, {});
    const auto read = store ? shown_run(**store) : tl::unexpected(store.error());
    if (!read) return "labels: " + read.error().message();
    shown = *read;
  }
  std::string wrong = fmt::format("shows steps {}", *steps);
  for (const auto& [step, content] : shown) {
    if (!content.labels.empty()) wrong += fmt::format(", with step {} as {}", step, content.labels);
  }
  for (const TestRun& run : allowed) {
    if (!has_steps_and_labels(run, shown)) continue;
    if (found != nullptr) *found = run;
    const auto store = open_store(files, kTestRun, {});
    if (!store) return run.empty() ? "" : store.error().message();
    wrong = check_content(**store, run);
    if (!wrong.empty()) continue;
    const auto list = (*store)->checkpoints();
    if (!list || list->size() != steps->size()) return "list() shows something else than steps()";
    return check_verification(**store, run);
  }
  return wrong;
}

std::string check_files(os::FakeFileSystem& files) {
  const RunLayout layout(kTestRun);
  std::set<std::string> named = {layout.run_record(), layout.lock(), layout.catalog(), layout.labels()};
  const auto directories = files.list_directory(layout.checkpoints());
  if (!directories) return directories.error().message();
  for (const std::string& name : *directories) {
    const std::uint64_t step = step_from_name(name).value_or(0);
    auto record = read_commit_record(files, layout, step);
    named.insert(layout.commit(step));
    if (!record) {
      record = read_commit_record(files, layout, step, true);
      named.insert(layout.retired(step));
    }
    if (!record) return fmt::format("stray directory {}", name);
    for (std::size_t number = 0; number < record->file_count(); ++number) {
      named.insert(layout.step_file(step, record->file(number).file));
    }
    named.insert(layout.step_file(step, kTensorsName));
    const auto tensors = read_tensor_index(files, layout, *record);
    if (!tensors) continue;
    CheckpointReader reader(files, layout, {});
    const auto expected = index_tensors(files, layout, reader, *record, {}, 1);
    if (expected && *tensors != *expected) {
      return fmt::format("the tensor index of step {} says another thing than its files", step);
    }
  }
  for (const std::string& file : files.all_files()) {
    const bool is_elsewhere = file.starts_with(layout.damaged() + "/") || file.starts_with(layout.branches() + "/");
    if (!is_elsewhere && !named.contains(file)) return "stray " + file;
  }
  return "";
}

std::uint64_t fingerprint(const os::FakeFileSystem& files, TensorIndexes indexes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  const auto mask = [&](std::string& text, std::string_view before) {
    for (std::size_t at = 0; (at = text.find(before, at)) != std::string::npos;) {
      at += before.size();
      for (; at < text.size() && kDigits.find(text[at]) != std::string_view::npos; ++at) text[at] = '0';
    }
  };
  std::string all;
  std::uint64_t nodes = 0;
  for (const os::FakeFileSystem::DiskName& name : files.all_names()) {
    std::string path = name.path;
    if (path.ends_with(".tmp")) {
      mask(path, ".json.");
      mask(path, ".bsnap.");
    }
    all += fmt::format("{}\n{} {} {}\n", path, name.is_seen, name.is_synced, name.node);
    if (name.is_directory || name.node <= nodes) continue;
    nodes = name.node;
    std::string contents(as_text(name.contents));
    std::uint64_t synced = name.synced_bytes;
    if (!path.ends_with(".bsnap")) {
      mask(contents, "\"time_unix_ms\":");
      mask(contents, "\"hash\":\"");
      if (path.find("bitsnap.json") != std::string::npos) mask(contents, "\"id\":\"");
    }
    if (indexes == TensorIndexes::ignored && path.find(kTensorsName) != std::string::npos) {
      if (!unseal_json("tensors", as_text(name.contents))) contents.clear();
      synced = 0;
    }
    all += fmt::format("{} {}\n{}", contents.size(), synced, contents);
  }
  return hash64(as_byte_span(all));
}

std::string broken_law(os::FakeFileSystem& files, const std::vector<TestRun>& allowed, const StoreOptions& options) {
  TestRun run;
  if (std::string wrong = check_shown(files, allowed, &run); !wrong.empty()) return wrong;
  if (std::string wrong = check_going_on(files, run, options); !wrong.empty()) return wrong;
  const auto synced = files.sync_directory("/");
  const bool has_directory_sync = !synced || *synced == os::DirectorySync::done;
  files.crash(has_directory_sync ? os::FakeFileSystem::CrashSpares::nothing
                                 : os::FakeFileSystem::CrashSpares::directory_entries);
  if (std::string wrong = check_shown(files, {run}); !wrong.empty()) return "after saving, and a crash: " + wrong;
  return "";
}

}  // namespace bitsnap::store
