#include "store/mirror_files.hpp"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "base/try.hpp"
#include "os/clock.hpp"
#include "store/stored_files.hpp"

namespace bitsnap::store {
namespace {

// The longest that an interrupt goes unseen.
constexpr std::uint64_t kRateSliceMs = 100;
// The index of a snapshot, with the hashes of its chunks, is at its end.
constexpr std::uint64_t kComparedBytes = std::uint64_t{64} << 10;

}  // namespace

Result<void> MirrorFiles::find_leftovers(const MirroredSteps& there) {
  BITSNAP_ASSIGN(const StoredFiles files, list_stored_files(to_, copy_));
  for (const auto& [path, info] : files) {
    const std::string name(os::file_name(path));
    const auto step = there.find(*step_from_name(os::parent_directory(path)));
    const bool is_named = step != there.end() && has_name(step->second.record, name);
    if (is_snapshot_file_name(name) && !is_named) leftovers_.insert(path);
    // Shards of ranks that wait for their commit.
    if (name.starts_with("shard-") && name.ends_with(".json")) {
      waiting_.insert(*step_from_name(os::parent_directory(path)));
    }
  }
  return {};
}

void MirrorFiles::begin() {
  sent_bytes_ = 0;
  total_bytes_ = 0;
}

Result<void> MirrorFiles::send(std::uint64_t step, const ShardFile& file) {
  const std::string source = run_.step_file(step, file.file);
  const std::string target = copy_.step_file(step, file.file);
  // It is left if this update ends before a record names it.
  const bool is_new = leftovers_.insert(os::join_path(step_name(step), file.file)).second;
  BITSNAP_ASSIGN(const bool is_same, is_new ? Result<bool>(false) : has_same_end(source, target));
  if (is_same) return {};
  if (!is_new) BITSNAP_TRY(to_.remove(target));
  sent_.insert(os::join_path(step_name(step), file.file));
  const auto on_piece = [&](std::size_t bytes) -> Result<void> {
    BITSNAP_TRY(keep_rate(bytes));
    sent_bytes_ += bytes;
    if (options_.progress && !options_.progress(sent_bytes_, std::max(total_bytes_, sent_bytes_))) {
      return fail(ErrorKind::cancelled, fmt::format("{}: cancelled", target));
    }
    return {};
  };
  return copy_file(from_, source, to_, target, on_piece);
}

// Whether a file that an update left, which was ended, is the one that is wanted.
Result<bool> MirrorFiles::has_same_end(const std::string& source, const std::string& target) const {
  BITSNAP_ASSIGN(const auto wanted, from_.open(source));
  const auto found_or_error = to_.open(target);
  if (!found_or_error && found_or_error.error().kind() == ErrorKind::not_found) return false;
  if (!found_or_error) return tl::unexpected(found_or_error.error());
  const auto& found = *found_or_error;
  const std::uint64_t size = wanted->size_bytes();
  if (found->size_bytes() != size) return false;
  const auto compared = static_cast<std::size_t>(std::min(size, kComparedBytes));
  std::vector<std::byte> a(compared);
  std::vector<std::byte> b(compared);
  BITSNAP_TRY(wanted->read_at(size - compared, a));
  BITSNAP_TRY(found->read_at(size - compared, b));
  return a == b;
}

// Waits until sending `bytes` more keeps to the rate.
Result<void> MirrorFiles::keep_rate(std::size_t bytes) {
  if (options_.bytes_per_second == 0) return {};
  const std::uint64_t now = os::monotonic_ns();
  free_at_ns_ = std::max(free_at_ns_, now);
  const std::uint64_t at = free_at_ns_;
  free_at_ns_ +=
      static_cast<std::uint64_t>(1e9 * static_cast<double>(bytes) / static_cast<double>(options_.bytes_per_second));
  for (std::uint64_t left = at - now; left > 0;) {
    const std::uint64_t slice = std::min(left, kRateSliceMs * 1'000'000);
    BITSNAP_TRY(pause(slice / 1'000'000 + 1));
    left -= slice;
  }
  return {};
}

Result<void> MirrorFiles::pause(std::uint64_t ms) const {
  if (options_.interrupted && options_.interrupted()) {
    return fail(ErrorKind::cancelled, fmt::format("{}: interrupted", copy_.root()));
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(ms));
  return {};
}

Result<void> MirrorFiles::drop_leftovers(const MirroredSteps& there, const std::vector<std::uint64_t>& unreadable) {
  for (const std::string& path : std::exchange(leftovers_, {})) {
    const std::uint64_t step = *step_from_name(os::parent_directory(path));
    const auto now = there.find(step);
    const std::string name(os::file_name(path));
    if (now != there.end() && has_name(now->second.record, name)) continue;
    const bool is_own = sent_.contains(path) ||
                        (!options_.step && !waiting_.contains(step) && !std::ranges::binary_search(unreadable, step));
    if (!is_own) continue;
    const auto removed = to_.remove(copy_.step_file(step, name));
    if (!removed && removed.error().kind() != ErrorKind::not_found) return removed;
    // The directory, if it is empty now.
    if (now == there.end()) static_cast<void>(to_.remove(copy_.step_directory(step)));
  }
  return {};
}

}  // namespace bitsnap::store
