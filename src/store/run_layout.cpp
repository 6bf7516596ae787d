// RunLayout: composes and parses the names in a store.
#include "store/run_layout.hpp"

#include <algorithm>
#include <charconv>
#include <utility>

#include <fmt/format.h>

#include "os/atomic_file.hpp"
#include "os/file_system.hpp"
#include "os/random.hpp"
#include "store/label_record.hpp"

namespace bitsnap::store {
namespace {

constexpr std::size_t kStepDigits = 10;
constexpr std::string_view kSnapshotSuffix = ".bsnap";
constexpr std::string_view kRecordSuffix = ".json";
constexpr std::string_view kFilesPrefix = "files-";
constexpr std::size_t kFilesHashDigits = 16;

bool is_digit(char c) noexcept { return c >= '0' && c <= '9'; }
bool is_hex_digit(char c) noexcept { return is_digit(c) || (c >= 'a' && c <= 'f'); }

// Parses the whole text as a decimal number.
template <typename Number>
std::optional<Number> parse_number(std::string_view text) noexcept {
  Number number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || text.empty()) return std::nullopt;
  return number;
}

// Splits "a.r2" into "a" and 2. Without a number at the end, the text stays whole and the number is 0.
std::pair<std::string_view, std::uint32_t> split_rewriting(std::string_view stem) noexcept {
  if (const std::size_t dot = stem.rfind(".r"); dot != std::string_view::npos) {
    if (const auto number = parse_number<std::uint32_t>(stem.substr(dot + 2))) return {stem.substr(0, dot), *number};
  }
  return {stem, 0};
}

std::string shard_stem(std::uint32_t shard, std::uint32_t shards, std::string_view attempt) {
  std::string stem = fmt::format("shard-{:05}-of-{:05}", shard, shards);
  if (!attempt.empty()) stem.append(".").append(attempt);
  return stem;
}

}  // namespace

std::string step_name(std::uint64_t step) { return fmt::format("{:010}", step); }

std::optional<std::uint64_t> step_from_name(std::string_view name) noexcept {
  if (name.size() < kStepDigits || !std::ranges::all_of(name, is_digit)) return std::nullopt;
  if (name.size() > kStepDigits && name.front() == '0') return std::nullopt;
  return parse_number<std::uint64_t>(name);
}

std::string shard_file_name(std::uint32_t shard, std::uint32_t shards, std::string_view attempt) {
  return shard_stem(shard, shards, attempt).append(kSnapshotSuffix);
}

std::string shard_record_name(std::uint32_t shard, std::uint32_t shards, std::string_view attempt) {
  return shard_stem(shard, shards, attempt).append(kRecordSuffix);
}

std::string files_file_name(std::uint64_t hash, std::string_view attempt) {
  return fmt::format("{}{:016x}{}{}{}", kFilesPrefix, hash, attempt.empty() ? "" : ".", attempt, kSnapshotSuffix);
}

std::optional<std::string_view> attempt_of_files(std::string_view name) noexcept {
  if (!is_snapshot_file_name(name) || !name.starts_with(kFilesPrefix)) return std::nullopt;
  name.remove_prefix(kFilesPrefix.size());
  name.remove_suffix(kSnapshotSuffix.size());
  if (name.size() < kFilesHashDigits || !std::ranges::all_of(name.substr(0, kFilesHashDigits), is_hex_digit))
    return std::nullopt;
  name.remove_prefix(kFilesHashDigits);
  if (name.empty()) return name;
  if (name.front() != '.' || !is_attempt_name(name.substr(1))) return std::nullopt;
  return name.substr(1);
}

namespace {

// A record may name a file of another writer whose name has the maximum length, so the new name is cut to that length.
std::string with_rewriting(std::string_view stem, std::uint64_t rewriting) {
  const std::string end = fmt::format(".r{}{}", rewriting, kSnapshotSuffix);
  return std::string(stem.substr(0, kMaxFileNameBytes - end.size())) + end;
}

std::string_view without_suffix(std::string_view name) {
  name.remove_suffix(name.ends_with(kSnapshotSuffix) ? kSnapshotSuffix.size() : 0);
  return name;
}

}  // namespace

std::string rewritten_file_name(std::string_view name) {
  const auto [stem, rewriting] = split_rewriting(without_suffix(name));
  return with_rewriting(stem, std::uint64_t{rewriting} + 1);
}

std::string drawn_file_name(std::string_view name) {
  const auto [stem, rewriting] = split_rewriting(without_suffix(name));
  return with_rewriting(stem, 1 + (os::random_u64() >> 33));
}

bool is_snapshot_file_name(std::string_view name) noexcept {
  return name.size() <= kMaxFileNameBytes && name.size() > kSnapshotSuffix.size() && name.ends_with(kSnapshotSuffix) &&
         name.front() != '.' && std::ranges::all_of(name, [](char c) {
           return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '.' || c == '-';
         });
}

bool is_attempt_name(std::string_view name) noexcept {
  // "r1" would look like the number of a rewritten file.
  const bool is_rewriting = name.size() > 1 && name.front() == 'r' && std::ranges::all_of(name.substr(1), is_digit);
  return !name.empty() && !is_rewriting && name.size() <= kMaxAttemptBytes &&
         std::ranges::all_of(name, [](char c) { return is_digit(c) || (c >= 'a' && c <= 'z') || c == '-'; });
}

bool is_own_file_name(std::string_view name) noexcept {
  if (name == kCommitName || name == kRetiredName || name == kTensorsName) return true;
  if (os::AtomicFile::is_temporary_name(name)) return true;
  if (attempt_of_files(name)) return true;
  return name.starts_with("shard-") && (is_snapshot_file_name(name) || name.ends_with(kRecordSuffix));
}

bool is_branch_name(std::string_view name) noexcept {
  return is_label(name) && name.size() <= kMaxFileNameBytes && name.find_first_of("/\\@:") == std::string_view::npos &&
         name.front() != '.' && name.front() != '-' && name.find_first_not_of("0123456789") != std::string_view::npos;
}

std::optional<ShardFileName> parse_shard_file_name(std::string_view name) {
  constexpr std::string_view kFirst = "shard-";
  constexpr std::string_view kMiddle = "-of-";
  constexpr std::size_t kDigits = 5;
  constexpr std::size_t kStem = kFirst.size() + kDigits + kMiddle.size() + kDigits;
  if (!is_snapshot_file_name(name) || name.size() < kStem + kSnapshotSuffix.size() || name[kStem] != '.' ||
      !name.starts_with(kFirst) || name.substr(kFirst.size() + kDigits, kMiddle.size()) != kMiddle) {
    return std::nullopt;
  }
  const auto shard = parse_number<std::uint32_t>(name.substr(kFirst.size(), kDigits));
  const auto shards = parse_number<std::uint32_t>(name.substr(kStem - kDigits, kDigits));
  if (!shard || !shards || *shard >= *shards) return std::nullopt;
  // The rest is "", ".ATTEMPT", ".rN" or ".ATTEMPT.rN".
  const auto [attempt, rewriting] = split_rewriting(name.substr(kStem, name.size() - kStem - kSnapshotSuffix.size()));
  return ShardFileName{*shard, *shards, std::string(attempt.substr(attempt.empty() ? 0 : 1)), rewriting};
}

std::string RunLayout::in_root(std::string_view name) const { return os::join_path(root_, name); }

std::string RunLayout::step_directory(std::uint64_t step) const {
  return os::join_path(checkpoints(), step_name(step));
}

std::string RunLayout::step_file(std::uint64_t step, std::string_view name) const {
  return os::join_path(step_directory(step), name);
}

std::string RunLayout::relative_file(std::uint64_t step, std::string_view name) {
  return fmt::format("{}/{}/{}", kCheckpointsName, step_name(step), name);
}

}  // namespace bitsnap::store
