// Reads the estimate of /proc/meminfo and the accounts of control groups, versions 1 and 2.
#include "os/memory_limit.hpp"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include "base/try.hpp"
#include "os/memory.hpp"
#include "os/text_file.hpp"

namespace bitsnap::os {
namespace {

// Version 1 writes "no limit" as a number of pages that no machine has.
constexpr std::uint64_t kUnlimitedBytes = std::uint64_t{1} << 60;

// The value in the line "name 1234"; 0 without such a line.
std::uint64_t statistic(std::string_view text, std::string_view name) {
  return parse_number<std::uint64_t>(find_line(text, std::string(name) + " ").value_or("")).value_or(0);
}

// Files of a group's directory, by version.
struct GroupFiles {
  std::string_view limits[2];
  std::string_view usage;
  std::string_view inactive_files;  // in memory.stat; includes the groups below
  std::string_view active_files;
};
// Above memory.high the system slows a group down more and more; at memory.max it kills.
constexpr GroupFiles kUnified{{"memory.max", "memory.high"}, "memory.current", "inactive_file", "active_file"};
constexpr GroupFiles kFirst{
    {"memory.limit_in_bytes", ""}, "memory.usage_in_bytes", "total_inactive_file", "total_active_file"};

class Least {
 public:
  void take(std::uint64_t available_bytes, std::uint64_t limit_bytes, std::string limit) {
    if (least_ && least_->available_bytes <= available_bytes) return;
    least_ = AvailableMemory{available_bytes, limit_bytes, std::move(limit)};
  }

  void take_group(const std::string& directory, const GroupFiles& files, TextReader read) {
    const auto number = [&](std::string_view file) -> std::optional<std::uint64_t> {
      if (file.empty()) return std::nullopt;
      const std::optional<std::string> text = read(directory + "/" + std::string(file));
      return text ? parse_number<std::uint64_t>(*text) : std::nullopt;
    };
    const std::optional<std::uint64_t> usage_bytes = number(files.usage);
    if (!usage_bytes) return;
    const std::string statistics = read(directory + "/memory.stat").value_or("");
    // The system drops pages of files that were not used of late. It also drops those that were, but a program may need
    // some of them, so half of them count, as in MemAvailable.
    const std::uint64_t files_bytes =
        statistic(statistics, files.inactive_files) + statistic(statistics, files.active_files) / 2;
    const std::uint64_t kept_bytes = *usage_bytes - std::min(*usage_bytes, files_bytes);
    for (const std::string_view file : files.limits) {
      const std::optional<std::uint64_t> limit_bytes = number(file);
      if (!limit_bytes || *limit_bytes >= kUnlimitedBytes) continue;
      take(*limit_bytes - std::min(*limit_bytes, kept_bytes), *limit_bytes,
           std::string(file) + " of " + directory + " is " + std::to_string(*limit_bytes) + " bytes");
    }
  }

  // With strict overcommit: what the system can still commit.
  void take_promises(std::string_view meminfo) {
    const std::optional<std::uint64_t> limit_bytes = field_bytes(meminfo, "CommitLimit");
    const std::optional<std::uint64_t> promised_bytes = field_bytes(meminfo, "Committed_AS");
    if (!limit_bytes || !promised_bytes) return;
    take(*limit_bytes - std::min(*limit_bytes, *promised_bytes), *limit_bytes,
         "CommitLimit of /proc/meminfo is " + std::to_string(*limit_bytes) + " bytes");
  }

  [[nodiscard]] std::optional<AvailableMemory> get() && { return std::move(least_); }

 private:
  std::optional<AvailableMemory> least_;
};

}  // namespace

Result<AvailableMemory> available_memory_by(TextReader read) {
  Least least;
  if (const std::optional<std::string> meminfo = read("/proc/meminfo")) {
    if (const std::optional<std::uint64_t> bytes = field_bytes(*meminfo, "MemAvailable")) {
      least.take(*bytes, field_bytes(*meminfo, "MemTotal").value_or(0),
                 "MemAvailable of /proc/meminfo is " + std::to_string(*bytes) + " bytes");
    }
    const std::optional<std::string> overcommit = read("/proc/sys/vm/overcommit_memory");
    if (overcommit && parse_number<std::uint64_t>(*overcommit) == 2) least.take_promises(*meminfo);
  }
  visit_cgroups("memory", read, [&](const std::string& directory, bool unified) {
    least.take_group(directory, unified ? kUnified : kFirst, read);
  });
  std::optional<AvailableMemory> found = std::move(least).get();
  if (!found) return fail(ErrorKind::unsupported, "available memory: the system does not report it");
  return *std::move(found);
}

Result<AvailableMemory> available_memory() { return available_memory_by(read_text_file); }

Result<AvailableMemory> available_memory_for(std::uint64_t bytes, const MemoryProbe& probe) {
  auto available = probe();
  if (!available || available->available_bytes >= bytes) return available;
  return_free_memory();
  return probe();
}

}  // namespace bitsnap::os
