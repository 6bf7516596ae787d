#include "objects/local_copies.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <iterator>
#include <memory>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/hash.hpp"
#include "base/try.hpp"
#include "os/random.hpp"

namespace bitsnap::objects {
namespace {

constexpr os::FileMode kOwnDirectory = 0700;  // a checkpoint may be secret
constexpr os::FileMode kOwnFile = 0600;
constexpr std::size_t kLeastBytes = std::size_t{4} << 10;         // a file takes as much of a disk
constexpr std::uint64_t kMostCopyBytes = std::uint64_t{1} << 28;  // of a copy; nobody keeps more in one
constexpr std::uint64_t kCounts = 64;  // of all copies, while one process keeps as many bytes as are allowed
constexpr int kMostFailures = 4;
constexpr std::uint64_t kChecksumBytes = sizeof(std::uint64_t);

std::array<std::byte, kChecksumBytes> checksum_of(ConstByteSpan bytes) {
  std::array<std::byte, kChecksumBytes> checksum{};
  const std::uint64_t hash = hash64(bytes);
  std::memcpy(checksum.data(), &hash, sizeof(hash));
  return checksum;
}

std::optional<std::uint64_t> offset_in(const std::string& name) {
  std::uint64_t offset = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), offset);
  if (error != std::errc() || end != name.data() + name.size()) return std::nullopt;
  return offset;
}

// Whether name_of() may have made it.
bool is_object(const std::string& name) {
  return name.size() == 32 && name.find_first_not_of("0123456789abcdef") == std::string::npos;
}

}  // namespace

LocalCopies::LocalCopies(os::FileSystem& files, std::string directory, std::uint64_t most_bytes)
    : files_(files), directory_(std::move(directory)), most_bytes_(most_bytes), nonce_(os::random_u64()) {}

std::string LocalCopies::name_of(const std::string& address, const std::string& version) {
  Hasher128 hasher;
  hasher.update(as_byte_span(address));
  hasher.update(as_byte_span(std::string("\n") + version));
  const Hash128 hash = hasher.digest();
  return fmt::format("{:016x}{:016x}", hash.high, hash.low);
}

std::string LocalCopies::path_of(const std::string& object, std::uint64_t offset) const {
  return fmt::format("{}/{}/{}", directory_, object, offset);
}

// Another process may have kept more since the last listing. Who keeps copies itself changes the directory all the
// time.
LocalCopies::Known& LocalCopies::known_of(const std::string& object) {
  Known& known = known_[object];
  if (known.has_own) return known;
  const std::string directory = directory_ + "/" + object;
  const auto changed = files_.stat(directory);
  if (!changed || !changed->exists || changed->modified_ns == known.listed_ns) return known;
  known.listed_ns = changed->modified_ns;
  const auto names = files_.list_directory(directory);
  if (!names) return known;
  for (const std::string& name : *names) {
    const auto offset = offset_in(name);
    if (!offset || known.ranges.contains(*offset)) continue;
    const auto info = files_.stat(path_of(object, *offset));
    if (info && info->is_regular && info->size_bytes > kChecksumBytes && info->size_bytes <= kMostCopyBytes) {
      known.ranges[*offset] = info->size_bytes - kChecksumBytes;
    }
  }
  return known;
}

std::vector<LocalCopies::Part> LocalCopies::parts_of(const std::string& object, std::uint64_t offset,
                                                     std::uint64_t size) {
  std::vector<Part> parts;
  const std::lock_guard lock(mutex_);
  const auto& ranges = known_of(object).ranges;
  for (std::uint64_t at = offset; at < offset + size;) {
    const auto after = ranges.upper_bound(at);
    if (after == ranges.begin()) return {};
    const auto [begin, bytes] = *std::prev(after);
    if (begin + bytes <= at) return {};
    parts.push_back({begin, bytes});
    at = begin + bytes;
  }
  return parts;
}

bool LocalCopies::read(const std::string& object, std::uint64_t offset, ByteSpan out) {
  const std::vector<Part> parts = parts_of(object, offset, out.size());
  if (parts.empty()) return false;
  const std::uint64_t end = offset + out.size();
  for (const Part& part : parts) {
    const std::uint64_t from = std::max(part.begin, offset);
    const std::uint64_t to = std::min(part.begin + part.size, end);
    const ByteSpan wanted = out.subspan(static_cast<std::size_t>(from - offset), static_cast<std::size_t>(to - from));
    if (read_part(object, part.begin, part.size, from - part.begin, wanted)) continue;
    const std::lock_guard lock(mutex_);
    known_[object].ranges.erase(part.begin);
    static_cast<void>(files_.remove(path_of(object, part.begin)));
    return false;
  }
  return true;
}

// The checksum is that of the whole copy, so all of it is read.
bool LocalCopies::read_part(const std::string& object, std::uint64_t begin, std::uint64_t size, std::uint64_t offset,
                            ByteSpan out) {
  const auto file = files_.open(path_of(object, begin));
  if (!file || (*file)->size_bytes() != size + kChecksumBytes) return false;
  std::vector<std::byte> buffer(out.size() == size ? 0 : static_cast<std::size_t>(size));
  const ByteSpan whole = out.size() == size ? out : ByteSpan(buffer);
  std::array<std::byte, kChecksumBytes> checksum{};
  if (!(*file)->read_at(0, whole) || !(*file)->read_at(size, checksum) || checksum_of(whole) != checksum) return false;
  if (!buffer.empty()) std::memcpy(out.data(), buffer.data() + offset, out.size());
  return true;
}

void LocalCopies::keep(const std::string& object, std::uint64_t offset, ConstByteSpan bytes) {
  if (bytes.size() < kLeastBytes || bytes.size() + kChecksumBytes > kMostCopyBytes) return;
  {
    const std::lock_guard lock(mutex_);
    if (is_off_) return;
    const auto& ranges = known_of(object).ranges;
    if (const auto found = ranges.find(offset); found != ranges.end() && found->second >= bytes.size()) return;
    if (!is_counted_) make_directory();
    // Other processes keep copies, too.
    const bool is_unsure = kept_ + bytes.size() > most_bytes_ / kCounts;
    if (!std::exchange(is_counted_, true) || is_unsure || bytes_ + bytes.size() > most_bytes_) make_room(object);
    is_off_ = bytes_ + bytes.size() > most_bytes_;
    if (is_off_) return;
    bytes_ += bytes.size();
    kept_ += bytes.size();
  }
  const Result<void> written = write(object, offset, bytes);
  const std::lock_guard lock(mutex_);
  // A full disk, most likely: others need what is left of it. Once, another process may have removed the directory.
  failures_ = written ? 0 : failures_ + 1;
  if (failures_ == kMostFailures) is_off_ = true;
  if (!written) return;
  known_[object].has_own = true;
  known_[object].ranges[offset] = bytes.size();
}

Result<void> LocalCopies::write(const std::string& object, std::uint64_t offset, ConstByteSpan bytes) {
  std::string temporary;
  {
    const std::lock_guard lock(mutex_);
    temporary = fmt::format("{}/{}/.{:016x}-{}", directory_, object, nonce_, ++written_);
  }
  static_cast<void>(files_.create_directory(directory_ + "/" + object, kOwnDirectory));  // may be there
  BITSNAP_ASSIGN(const std::unique_ptr<os::WritableFile> file, files_.create(temporary, kOwnFile));
  const auto write_whole = [&]() -> Result<void> {
    BITSNAP_TRY(file->append(bytes));
    BITSNAP_TRY(file->append(checksum_of(bytes)));
    BITSNAP_TRY(file->close());
    return files_.rename(temporary, path_of(object, offset));
  };
  Result<void> written = write_whole();
  if (!written) static_cast<void>(files_.remove(temporary));
  return written;
}

// With all directories above.
void LocalCopies::make_directory() {
  std::size_t end = 0;
  while (end != std::string::npos) {
    end = directory_.find('/', end + 1);
    static_cast<void>(files_.create_directory(directory_.substr(0, end), kOwnDirectory));  // may be there
  }
}

// Counts all copies, and removes those of the objects that were kept longest ago, but not of `object`, until an eighth
// of the limit is free.
void LocalCopies::make_room(const std::string& object) {
  struct Found {
    std::int64_t newest_ns = 0;
    std::uint64_t bytes = 0;
    std::string name;
    std::vector<std::string> paths;
  };
  std::vector<Found> all;
  bytes_ = 0;
  kept_ = 0;
  const auto names = files_.list_directory(directory_);
  for (const std::string& name : names ? *names : std::vector<std::string>()) {
    if (!is_object(name)) continue;
    Found& found = all.emplace_back();
    found.name = name;
    const auto copies = files_.list_directory(directory_ + "/" + name);
    for (const std::string& copy : copies ? *copies : std::vector<std::string>()) {
      if (!offset_in(copy) && !copy.starts_with('.')) continue;
      found.paths.push_back(fmt::format("{}/{}/{}", directory_, name, copy));
      const auto info = files_.stat(found.paths.back());
      if (!info) continue;
      found.bytes += info->size_bytes;
      found.newest_ns = std::max(found.newest_ns, info->modified_ns);
    }
    bytes_ += found.bytes;
  }
  if (bytes_ <= most_bytes_ - most_bytes_ / 8) return;
  std::ranges::sort(all, {}, &Found::newest_ns);
  for (const Found& found : all) {
    if (bytes_ <= most_bytes_ - most_bytes_ / 8) return;
    if (found.name == object) continue;
    known_.erase(found.name);
    for (const std::string& path : found.paths) static_cast<void>(files_.remove(path));
    static_cast<void>(files_.remove(directory_ + "/" + found.name));
    bytes_ -= found.bytes;
  }
}

}  // namespace bitsnap::objects
