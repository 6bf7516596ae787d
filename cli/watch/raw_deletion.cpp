#include "cli/watch/raw_deletion.hpp"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <bitsnap/snapshot.hpp>

#include "cli/input/checkpoint_input.hpp"
#include "cli/input/checkpoint_names.hpp"
#include "cli/input/references.hpp"
#include "cli/input/run_path.hpp"
#include "cli/operating_system.hpp"
#include "cli/watch/raw_comparison.hpp"
#include "cli/watch/raw_tree.hpp"
#include "src/base/try.hpp"

namespace bitsnap::cli {

namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr const char* kChanged = "it changed while it was compared";

RawDeletion stays(std::string reason) { return {.is_deleted = false, .reason = std::move(reason), .bytes = 0}; }

Error copy_error(const Store& store, std::uint64_t step, Error error) {
  if (error.kind() == ErrorKind::cancelled) return error;
  return std::move(error).within(
      fmt::format("the raw checkpoint stays, because {} does not verify", checkpoint_name(store.path(), step)));
}

// Gives a changed checkpoint its name back, unless the training has written a newer one there.
Result<RawDeletion> give_back(const std::string& hidden, const std::string& path, const std::string& reason) {
  if (auto renamed = rename_no_replace(hidden, path); !renamed) {
    BITSNAP_ASSIGN(const auto newer, read_facts(path));
    if (!newer) return tl::unexpected(std::move(renamed).error());
    return stays(fmt::format("{}, and was written anew meanwhile; the one before is {}", reason, hidden));
  }
  return stays(reason);
}

// Removes links, and not what they lead to.
Result<void> remove_raw(const std::string& path) {
  std::error_code error;
  fs::remove_all(path, error);
  if (!error) return {};
  return fail(ErrorKind::io, fmt::format("{}: cannot be removed completely: {}", path, error.message()));
}

// What differs; empty if nothing does.
Result<std::string> compare_copy(const Store& store, const std::string& path, const std::vector<RawEntry>& tree,
                                 std::uint64_t step, RawMatch match, unsigned threads) {
  BITSNAP_ASSIGN(const auto snapshot, store.snapshot(step));
  BITSNAP_ASSIGN(const auto difference, compare_raw(path, tree, snapshot, match, threads));
  if (!difference) return std::string();
  return difference->is_in_bytes && is_lossy(*snapshot) ? "it is stored with loss" : difference->what;
}

Result<void> verify_step(const Store& store, std::uint64_t step, unsigned threads) {
  BITSNAP_ASSIGN(const auto snapshot, store.snapshot(step));
  return check_decodes(*snapshot, threads);
}

// Whether equal times of change before a comparison and after the rename that followed it prove that nothing changed.
// They do not for a single file, because the rename changes its time; nor for what changed shortly before, because some
// file systems count time in steps. `elapsed`: since before the first time was read.
bool is_proved_unchanged(const std::vector<RawEntry>& renamed, Clock::duration elapsed) {
  if (renamed.front().facts.kind != NodeKind::directory) return false;
  constexpr std::chrono::seconds kCoarsestTime(2);
  // By the clock of the file system, which may be that of another machine.
  const std::int64_t start =
      renamed.front().facts.changed_ns - std::chrono::nanoseconds(elapsed + kCoarsestTime).count();
  return std::ranges::all_of(renamed.begin() + 1, renamed.end(),
                             [&](const RawEntry& each) { return each.facts.changed_ns < start; });
}

}  // namespace

Result<RawDeletion> delete_verified(const Store& store, const std::string& path, std::uint64_t step, unsigned threads) {
  const auto start = Clock::now();
  BITSNAP_ASSIGN(const auto tree, list_raw(path));
  if (tree.front().facts.kind == NodeKind::symbolic_link) return stays("it is a symbolic link");
  BITSNAP_ASSIGN(const auto held, find_held_elsewhere(path));
  if (held) return stays("it " + *held);
  const std::string hidden = deleting_path(path);
  BITSNAP_ASSIGN(const auto earlier, read_facts(hidden));
  if (earlier) return stays(fmt::format("{} is left of an earlier deletion", hidden));
  auto difference = compare_copy(store, path, tree, step, RawMatch::everything, threads);
  if (!difference) return tl::unexpected(copy_error(store, step, std::move(difference).error()));
  if (!difference->empty()) return stays(*difference);
  // A crash of the machine must not undo the commit after the files are gone.
  BITSNAP_TRY(sync_file_system(store.path()));
  BITSNAP_TRY(rename_no_replace(path, hidden));
  const auto now = list_raw(hidden);
  if (!now || !equal_but_renamed(tree, *now)) return give_back(hidden, path, kChanged);
  if (!is_proved_unchanged(*now, Clock::now() - start)) {
    auto again = compare_copy(store, hidden, *now, step, RawMatch::everything, threads);
    if (!again) {
      BITSNAP_TRY(give_back(hidden, path, kChanged));
      return tl::unexpected(copy_error(store, step, std::move(again).error()));
    }
    const auto last = list_raw(hidden);
    if (!again->empty() || !last || *last != *now) return give_back(hidden, path, kChanged);
  }
  BITSNAP_TRY(remove_raw(hidden));
  return RawDeletion{.is_deleted = true, .reason = {}, .bytes = bytes_of(tree)};
}

Result<RawDeletion> finish_deletion(const Store& store, const std::string& path, std::uint64_t step, unsigned threads) {
  BITSNAP_ASSIGN(const auto tree, list_raw(path));
  BITSNAP_ASSIGN(const auto held, find_held_elsewhere(path));
  if (held) return stays("it " + *held);
  if (auto verified = verify_step(store, step, threads); !verified) {
    return tl::unexpected(copy_error(store, step, std::move(verified).error()));
  }
  auto difference = compare_copy(store, path, tree, step, RawMatch::remainder, threads);
  if (!difference) return tl::unexpected(copy_error(store, step, std::move(difference).error()));
  if (!difference->empty()) return stays(*difference);
  BITSNAP_TRY(sync_file_system(store.path()));
  BITSNAP_ASSIGN(const auto now, list_raw(path));
  if (now != tree) return stays(kChanged);
  BITSNAP_TRY(remove_raw(path));
  return RawDeletion{.is_deleted = true, .reason = {}, .bytes = bytes_of(tree)};
}

}  // namespace bitsnap::cli
