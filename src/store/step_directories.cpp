// StepDirectories: listing, creating and removing.
#include "store/step_directories.hpp"

#include <algorithm>
#include <map>
#include <ranges>
#include <string_view>

#include <fmt/format.h>

#include "base/try.hpp"
#include "exec/executor.hpp"
#include "os/atomic_file.hpp"
#include "store/missing_store.hpp"

namespace bitsnap::store {
namespace {

// Number of directories that one thread looks at in a row.
constexpr std::size_t kLookBlock = 256;
// An error about a missing step names this many steps on each side of it.
constexpr std::size_t kNearbySteps = 2;
constexpr int kListAgain = 3;

// "10, 20, 30 and 40"
std::string list_steps(const std::vector<std::uint64_t>& steps) {
  std::string text;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    text += fmt::format("{}{}", i == 0 ? "" : i + 1 == steps.size() ? " and " : ", ", steps[i]);
  }
  return text;
}

// The steps of files by their paths, such as "0000000001/commit.json".
std::vector<StepEntry> entries_of(const os::FileSystem::Tree& tree) {
  std::map<std::uint64_t, StepEntry> entries;
  for (const auto& [path, info] : tree) {
    const std::size_t slash = path.find('/');
    const auto step = slash == std::string::npos ? std::nullopt : step_from_name(path.substr(0, slash));
    if (!step) continue;
    StepEntry& entry = entries[*step];
    entry.step = *step;
    const std::string_view name = std::string_view(path).substr(slash + 1);
    const bool is_committed = name == kCommitName;
    if (!is_committed && (name != kRetiredName || entry.state == StepState::committed)) continue;
    entry.state = is_committed ? StepState::committed : StepState::retired;
    entry.record = info;
  }
  std::vector<StepEntry> in_order;
  in_order.reserve(entries.size());
  for (auto& [step, entry] : entries) in_order.push_back(std::move(entry));
  return in_order;
}

}  // namespace

Result<StepEntry> StepDirectories::look(std::uint64_t step) const {
  StepEntry entry;
  entry.step = step;
  BITSNAP_ASSIGN(entry.record, file_system_.stat(layout_.commit(step)));
  if (entry.record.exists) {
    entry.state = StepState::committed;
    return entry;
  }
  BITSNAP_ASSIGN(entry.record, file_system_.stat(layout_.retired(step)));
  if (entry.record.exists) entry.state = StepState::retired;
  return entry;
}

Result<std::optional<StepEntry>> StepDirectories::look_at(std::uint64_t step) const {
  auto entry = look(step);
  if (entry) return *entry;
  // Another program's file may have a name like a step.
  BITSNAP_ASSIGN(const os::FileInfo there, file_system_.stat(layout_.step_directory(step)));
  if (there.exists && there.is_directory) return tl::unexpected(std::move(entry).error());
  return std::nullopt;
}

Result<std::vector<std::uint64_t>> StepDirectories::list_names() const {
  BITSNAP_ASSIGN(const std::vector<std::string> names, file_system_.list_directory(layout_.checkpoints()));
  std::vector<std::uint64_t> steps;
  steps.reserve(names.size());
  for (const std::string& name : names) {
    if (const std::optional<std::uint64_t> step = step_from_name(name)) steps.push_back(*step);
  }
  std::ranges::sort(steps);
  return steps;
}

Result<std::vector<StepEntry>> StepDirectories::list() const {
  BITSNAP_ASSIGN(const std::optional<os::FileSystem::Tree> tree, file_system_.list_tree(layout_.checkpoints()));
  if (tree) {
    std::vector<StepEntry> entries = entries_of(*tree);
    // A writer removes steps without a record. A list that was not current must not be the reason.
    for (StepEntry& entry : entries) {
      if (entry.state != StepState::uncommitted) continue;
      BITSNAP_ASSIGN(entry, look(entry.step));
    }
    return entries;
  }
  BITSNAP_ASSIGN(const std::vector<std::uint64_t> steps, list_names());
  std::vector<std::optional<StepEntry>> looked(steps.size());
  // Listing costs one query per file. They run in parallel, because each is slow on a network file system.
  const std::size_t blocks = (looked.size() + kLookBlock - 1) / kLookBlock;
  const auto executor = exec::make_executor(0);
  BITSNAP_TRY(executor->run(blocks, executor->default_slots(), [&](std::size_t block, std::size_t) -> Result<void> {
    const std::size_t end = std::min(looked.size(), (block + 1) * kLookBlock);
    for (std::size_t i = block * kLookBlock; i < end; ++i) {
      BITSNAP_ASSIGN(looked[i], look_at(steps[i]));
    }
    return {};
  }));
  std::vector<StepEntry> entries;
  entries.reserve(looked.size());
  for (const std::optional<StepEntry>& entry : looked) {
    if (entry) entries.push_back(*entry);
  }
  return entries;
}

Result<NewestSteps> StepDirectories::list_newest() const {
  BITSNAP_ASSIGN(const std::vector<std::uint64_t> steps, list_names());
  NewestSteps newest;
  newest.all_steps = steps.size();
  for (const std::uint64_t step : std::views::reverse(steps)) {
    BITSNAP_ASSIGN(const std::optional<StepEntry> entry, look_at(step));
    if (!entry) continue;
    newest.entries.push_back(*entry);
    if (entry->state == StepState::committed) break;
  }
  std::ranges::reverse(newest.entries);
  return newest;
}

Result<std::optional<StepEntry>> StepDirectories::find(std::uint64_t step) const {
  BITSNAP_ASSIGN(const std::optional<StepEntry> entry, look_at(step));
  if (entry && entry->state == StepState::uncommitted) {
    BITSNAP_ASSIGN(const os::FileInfo there, file_system_.stat(layout_.step_directory(step)));
    if (!there.exists || !there.is_directory) return std::nullopt;
  }
  return entry;
}

Result<void> StepDirectories::create(std::uint64_t step) {
  const std::string path = layout_.step_directory(step);
  Result<void> created = file_system_.create_directory(path);
  if (created || created.error().kind() != ErrorKind::invalid_argument) return created;
  BITSNAP_ASSIGN(const os::FileInfo info, file_system_.stat(path));
  if (info.exists && info.is_directory) return {};
  return created;
}

Result<void> StepDirectories::sync(const std::string& directory) {
  BITSNAP_ASSIGN(const os::DirectorySync synced, file_system_.sync_directory(directory));
  note_sync(synced == os::DirectorySync::done);
  return {};
}

Result<void> StepDirectories::settle_set_aside() {
  BITSNAP_ASSIGN(const os::FileInfo info, file_system_.stat(layout_.damaged()));
  if (!info.exists) return {};
  BITSNAP_TRY(sync(layout_.damaged()));
  return sync_checkpoints();
}

Result<void> StepDirectories::remove(std::uint64_t step) {
  const std::string directory = layout_.step_directory(step);
  BITSNAP_ASSIGN(const std::vector<std::string> names, file_system_.list_directory(directory));
  for (const std::string_view record : {kCommitName, kRetiredName}) {
    if (std::ranges::find(names, record) != names.end()) {
      BITSNAP_TRY(file_system_.remove(layout_.step_file(step, record)));
    }
  }
  // Syncs even without a record: a writer may have removed the record and been killed before the sync.
  BITSNAP_TRY(sync(directory));
  bool is_empty = true;
  for (const std::string& name : names) {
    if (name == kCommitName || name == kRetiredName) continue;
    if (is_own_file_name(name)) {
      BITSNAP_TRY(file_system_.remove(layout_.step_file(step, name)));
    } else {
      is_empty = false;
    }
  }
  if (!is_empty) return {};
  // On some network file systems, removing an open file leaves another file until it is closed. A directory without a
  // record is ignored, and the next prune removes it.
  Result<void> removed = file_system_.remove(directory);
  if (!removed && removed.error().kind() == ErrorKind::invalid_argument) return {};
  return removed;
}

Result<std::vector<std::string>> StepDirectories::removable(std::uint64_t step) const {
  BITSNAP_ASSIGN(std::vector<std::string> names, file_system_.list_directory(layout_.step_directory(step)));
  const std::size_t others = std::erase_if(names, [](const std::string& name) { return !is_own_file_name(name); });
  if (others == 0) return std::vector{fmt::format("{}/{}", kCheckpointsName, step_name(step))};
  for (std::string& name : names) name = RunLayout::relative_file(step, name);
  return names;
}

Result<void> StepDirectories::retire(std::uint64_t step) {
  BITSNAP_TRY(file_system_.rename(layout_.commit(step), layout_.retired(step)));
  return sync_step(step);
}

Result<std::string> StepDirectories::set_aside(std::uint64_t step) {
  BITSNAP_ASSIGN(const os::FileInfo info, file_system_.stat(layout_.damaged()));
  if (!info.exists) {
    BITSNAP_TRY(file_system_.create_directory(layout_.damaged()));
    BITSNAP_TRY(sync(layout_.root()));
  }
  for (int attempt = 1;; ++attempt) {
    const std::string name = attempt == 1 ? step_name(step) : fmt::format("{}-{}", step_name(step), attempt);
    const std::string target = os::join_path(layout_.damaged(), name);
    BITSNAP_ASSIGN(const os::FileInfo there, file_system_.stat(target));
    if (there.exists) continue;
    BITSNAP_TRY(file_system_.rename(layout_.step_directory(step), target));
    BITSNAP_TRY(sync(layout_.damaged()));
    BITSNAP_TRY(sync_checkpoints());
    return fmt::format("{}/{}", kDamagedName, name);
  }
}

Result<std::vector<std::string>> StepDirectories::strays(std::uint64_t step, const CommitRecord* record) const {
  BITSNAP_ASSIGN(const std::vector<std::string> names, file_system_.list_directory(layout_.step_directory(step)));
  const bool is_committed = std::ranges::find(names, kCommitName) != names.end();
  std::vector<std::string> strays;
  for (const std::string& name : names) {
    if (!is_own_file_name(name) || name == kCommitName) continue;
    if (name == kRetiredName && !is_committed) continue;
    if (name == kTensorsName) continue;  // belongs to the step whatever its state is
    const bool is_temporary = os::AtomicFile::is_temporary_name(name);
    if (record == nullptr && !is_temporary) continue;
    if (record != nullptr && std::ranges::find(record->shards, name, &ShardFile::file) != record->shards.end())
      continue;
    if (record != nullptr && record->files && record->files->file == name) continue;
    strays.push_back(name);
  }
  return strays;
}

Result<void> StepDirectories::remove_file(std::uint64_t step, const std::string& name) {
  return file_system_.remove(layout_.step_file(step, name));
}

// Lists the steps. A writer may save a new checkpoint and remove the newest one while this function looks at the listed
// names; then no checkpoint is found, and the listing is repeated.
Result<std::vector<StepEntry>> StepDirectories::list_again() const {
  const auto is_committed = [](const StepEntry& entry) { return entry.state == StepState::committed; };
  for (int again = 0;; ++again) {
    BITSNAP_ASSIGN(std::vector<StepEntry> entries, list());
    if (entries.empty() || again == kListAgain || std::ranges::any_of(entries, is_committed)) return entries;
  }
}

Result<std::vector<std::uint64_t>> StepDirectories::steps() const {
  BITSNAP_ASSIGN(const std::vector<StepEntry> entries, list_again());
  std::vector<std::uint64_t> steps;
  for (const StepEntry& entry : entries) {
    if (entry.state == StepState::committed) steps.push_back(entry.step);
  }
  return steps;
}

Error StepDirectories::not_found(std::uint64_t step) const {
  std::string message = fmt::format("{}: step {} not found", layout_.root(), step);
  if (const auto known = steps()) {
    if (known->empty()) {
      message += "; the store has no checkpoints" + similar_stores(file_system_, layout_.root());
    } else {
      const auto after = std::ranges::lower_bound(*known, step);
      const auto first = after - std::min<std::ptrdiff_t>(after - known->begin(), kNearbySteps);
      const auto last = after + std::min<std::ptrdiff_t>(known->end() - after, kNearbySteps);
      message += fmt::format("; nearby {} {}", last - first == 1 ? "is" : "are",
                             list_steps(std::vector<std::uint64_t>(first, last)));
    }
  }
  return Error(ErrorKind::not_found, std::move(message));
}

Result<std::vector<ShardRecord>> StepDirectories::pending_shards(std::uint64_t step) const {
  BITSNAP_ASSIGN(const std::vector<std::string> names, file_system_.list_directory(layout_.step_directory(step)));
  std::vector<ShardRecord> pending;
  for (const std::string& name : names) {
    if (!name.starts_with("shard-") || !name.ends_with(".json")) continue;
    auto record = read_shard_record(file_system_, layout_.step_file(step, name));
    if (record) pending.push_back(std::move(*record));
    if (!record && !is_damage(record.error())) return tl::unexpected(std::move(record).error());
  }
  return pending;
}

Result<std::vector<ShardRecord>> StepDirectories::waiting_replacements(std::uint64_t step,
                                                                       const CommitRecord& record) const {
  BITSNAP_ASSIGN(std::vector<ShardRecord> waiting, pending_shards(step));
  std::erase_if(waiting, [&](const ShardRecord& shard) { return shard.attempt == record.attempt; });
  return waiting;
}

Result<void> StepDirectories::spare_waiting(std::uint64_t step, const CommitRecord& record,
                                            std::vector<std::string>& strays) const {
  if (strays.empty()) return {};
  BITSNAP_ASSIGN(const std::vector<ShardRecord> waiting, waiting_replacements(step, record));
  for (const ShardRecord& shard : waiting) {
    std::erase(strays, shard_record_name(shard.shard, shard.shards, shard.attempt));
    std::erase(strays, shard.file.file);
  }
  return {};
}

Result<std::string> StepDirectories::free_file_name(std::uint64_t step, std::string name) const {
  if (!file_system_.has_lasting_locks()) return drawn_file_name(name);
  for (;;) {
    BITSNAP_ASSIGN(const os::FileInfo info, file_system_.stat(layout_.step_file(step, name)));
    if (!info.exists) return name;
    name = rewritten_file_name(name);
  }
}

}  // namespace bitsnap::store
