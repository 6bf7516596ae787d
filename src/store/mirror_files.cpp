#include "store/mirror_files.hpp"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "base/try.hpp"
#include "os/atomic_file.hpp"
#include "store/stored_files.hpp"

namespace bitsnap::store {
namespace {

// The longest that an interrupt goes unseen.
constexpr std::uint64_t kRateSliceMs = 100;
// The index of a snapshot, with the hashes of its chunks, is at its end.
constexpr std::uint64_t kComparedBytes = std::uint64_t{64} << 10;
constexpr std::size_t kPieceBytes = std::size_t{4} << 20;
constexpr std::uint64_t kAheadBytes = std::uint64_t{64} << 20;

}  // namespace

Result<void> MirrorFiles::find_leftovers(const MirroredSteps& there) {
  BITSNAP_ASSIGN(const StoredFiles files, list_stored_files(to_, copy_));
  for (const auto& [path, info] : files) {
    const std::string name(os::file_name(path));
    if (os::AtomicFile::is_temporary_name(name)) {
      BITSNAP_TRY(to_.remove(os::join_path(copy_.checkpoints(), path)));
      continue;
    }
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

Result<std::optional<Error>> MirrorFiles::send(std::uint64_t step, const ShardFile& file) {
  const std::string path = os::join_path(step_name(step), file.file);
  const std::string target = copy_.step_file(step, file.file);
  auto source = from_.open(run_.step_file(step, file.file), os::AccessPattern::sequential);
  if (!source) return of_run(std::move(source).error());
  // It is left if this update ends before a record names it.
  if (!leftovers_.insert(path).second) {
    unread_.reset();
    const auto found = compare(**source, target);
    if (!found && unread_) return of_run(*std::exchange(unread_, std::nullopt));
    if (!found) return tl::unexpected(found.error());
    if (*found == Leftover::whole) return std::nullopt;
    if (*found == Leftover::other) BITSNAP_TRY(to_.remove(target));
  }
  sent_.insert(path);
  unread_.reset();
  Result<void> written = write(**source, target);
  if (unread_) return of_run(*std::exchange(unread_, std::nullopt));
  if (!written) return tl::unexpected(std::move(written).error());
  return std::nullopt;
}

// What has the name is whole, also after a crash: an object appears whole.
Result<void> MirrorFiles::write(const os::RandomAccessFile& source, const std::string& target) {
  if (to_.has_lasting_locks()) {
    BITSNAP_ASSIGN(os::AtomicFile file, os::AtomicFile::create(to_, target, false));
    BITSNAP_TRY(copy(source, file.file()));
    return file.commit();
  }
  BITSNAP_ASSIGN(const auto object, to_.create(target));
  BITSNAP_TRY(copy(source, *object));
  BITSNAP_TRY(object->sync());
  return object->close();
}

// An error of the disk may be one of this file alone; if a service fails, it is not the file.
Result<std::optional<Error>> MirrorFiles::of_run(Error error) const {
  if (is_damage(error) || (error.kind() == ErrorKind::io && from_.has_lasting_locks())) return std::optional(error);
  return tl::unexpected(std::move(error));
}

Result<void> MirrorFiles::copy(const os::RandomAccessFile& source, os::WritableFile& target) {
  const std::uint64_t size = source.size_bytes();
  std::vector<os::FileRange> pieces;
  for (std::uint64_t offset = 0; source.has_requests() && offset < size; offset += kPieceBytes) {
    pieces.push_back({offset, std::min<std::uint64_t>(kPieceBytes, size - offset)});
  }
  const std::unique_ptr<os::ReadAhead> ahead = source.read_ahead(pieces, kAheadBytes);
  std::vector<std::byte> block(static_cast<std::size_t>(std::min<std::uint64_t>(kPieceBytes, size)));
  for (std::uint64_t offset = 0; offset < size; offset += kPieceBytes) {
    const auto piece = static_cast<std::size_t>(std::min<std::uint64_t>(kPieceBytes, size - offset));
    BITSNAP_TRY(check_interrupt());
    BITSNAP_TRY(keep_rate(piece));
    sent_bytes_ += piece;
    if (options_.progress && !options_.progress(sent_bytes_, std::max(total_bytes_, sent_bytes_))) {
      return fail(ErrorKind::cancelled, fmt::format("{}: cancelled", target.path()));
    }
    BITSNAP_TRY(read(source, offset, ByteSpan(block).first(piece)));
    BITSNAP_TRY(target.append(ConstByteSpan(block).first(piece)));
  }
  return {};
}

// Of a file of the run: an error is noted.
Result<void> MirrorFiles::read(const os::RandomAccessFile& source, std::uint64_t offset, ByteSpan out) {
  Result<void> done = source.read_at(offset, out);
  if (!done) unread_ = done.error();
  return done;
}

// Whether a file that an update left, which was ended, is the one that is wanted.
Result<MirrorFiles::Leftover> MirrorFiles::compare(const os::RandomAccessFile& wanted, const std::string& target) {
  const auto found = to_.open(target);
  if (!found && found.error().kind() == ErrorKind::not_found) return Leftover::none;
  if (!found) return tl::unexpected(found.error());
  const std::uint64_t size = wanted.size_bytes();
  if ((*found)->size_bytes() != size) return Leftover::other;
  const auto compared = static_cast<std::size_t>(std::min(size, kComparedBytes));
  std::vector<std::byte> a(compared);
  std::vector<std::byte> b(compared);
  BITSNAP_TRY(read(wanted, size - compared, a));
  BITSNAP_TRY((*found)->read_at(size - compared, b));
  return a == b ? Leftover::whole : Leftover::other;
}

// Waits until sending `bytes` more keeps to the rate.
Result<void> MirrorFiles::keep_rate(std::size_t bytes) {
  for (std::uint64_t left = rate_.plan(bytes); left > 0;) {
    const std::uint64_t slice = std::min(left, kRateSliceMs * 1'000'000);
    BITSNAP_TRY(pause(slice / 1'000'000 + 1));
    left -= slice;
  }
  return {};
}

Result<void> MirrorFiles::check_interrupt() const {
  if (!options_.interrupted || !options_.interrupted()) return {};
  return fail(ErrorKind::cancelled, fmt::format("{}: interrupted", copy_.root()));
}

Result<void> MirrorFiles::pause(std::uint64_t ms) const {
  BITSNAP_TRY(check_interrupt());
  std::this_thread::sleep_for(std::chrono::milliseconds(ms));
  return {};
}

Result<void> MirrorFiles::drop_leftovers(const MirroredSteps& there, const std::set<std::uint64_t>& kept) {
  for (const std::string& path : std::exchange(leftovers_, {})) {
    const std::uint64_t step = *step_from_name(os::parent_directory(path));
    const auto now = there.find(step);
    const std::string name(os::file_name(path));
    if (now != there.end() && has_name(now->second.record, name)) continue;
    if (kept.contains(step)) {
      leftovers_.insert(path);
      continue;
    }
    if (!sent_.contains(path) && (options_.step || waiting_.contains(step))) continue;
    const auto removed = to_.remove(copy_.step_file(step, name));
    if (!removed && removed.error().kind() != ErrorKind::not_found) return removed;
    // The directory, if it is empty now.
    if (now == there.end()) static_cast<void>(to_.remove(copy_.step_directory(step)));
  }
  return {};
}

}  // namespace bitsnap::store
