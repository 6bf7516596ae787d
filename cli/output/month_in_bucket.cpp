#include "cli/output/month_in_bucket.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include <fmt/format.h>

#include "cli/text_format.hpp"

namespace bitsnap::cli {
namespace {

constexpr double kMonthSeconds = 30.0 * 24 * 3600;
constexpr double kLeaseSeconds = 10;  // between two changes of the object `lock`
constexpr std::size_t kNewest = 11;
// As docs/guide/object-stores.md says: a file up to 8 MB is one request, a larger one has parts of 32 MB, with one
// request to begin it and one to end it. These are the sizes in the Python package.
constexpr double kSingleBytes = 8 << 20;
constexpr double kPartBytes = 32 << 20;
constexpr double kReadsOfSave = 5;

double writes_of(const Checkpoint& checkpoint) {
  const double shards = std::max<double>(checkpoint.shards, 1);
  const double file = static_cast<double>(checkpoint.stored_bytes) / shards;
  const double of_file = file <= kSingleBytes ? 1 : 2 + std::ceil(file / kPartBytes);
  const double records = shards > 1 ? shards + 1 : 1;
  return shards * of_file + records;
}

// The median time between the newest checkpoints; nullopt if it is not known.
std::optional<double> seconds_between(std::span<const Checkpoint> newest) {
  std::vector<double> seconds;
  for (std::size_t i = 1; i < newest.size(); ++i) {
    const auto milliseconds = static_cast<double>(newest[i].time_unix_ms - newest[i - 1].time_unix_ms);
    if (milliseconds > 0) seconds.push_back(milliseconds / 1000);
  }
  if (seconds.empty()) return std::nullopt;
  const auto middle = seconds.begin() + static_cast<std::ptrdiff_t>(seconds.size() / 2);
  std::ranges::nth_element(seconds, middle);
  return *middle;
}

std::string interval(double seconds) {
  if (seconds < 10) return fmt::format("{:.1f} s", seconds);
  if (seconds < 120) return fmt::format("{:.0f} s", seconds);
  return seconds < 7200 ? fmt::format("{:.0f} min", seconds / 60) : fmt::format("{:.0f} h", seconds / 3600);
}

double storage_cost(const MonthInBucket& month) {
  return static_cast<double>(month.bytes) / 1e9 * month.prices.gigabyte;
}
double request_cost(const MonthInBucket& month) {
  return (month.writes * month.prices.writes + month.reads * month.prices.reads) / 1000;
}
double lease_cost(const MonthInBucket& month) { return month.lease_writes / 1000 * month.prices.writes; }

}  // namespace

MonthInBucket month_in_bucket(std::span<const Checkpoint> checkpoints, std::uint64_t held_bytes,
                              const BucketPrices& prices) {
  MonthInBucket month;
  month.bytes = held_bytes;
  month.prices = prices;
  std::vector<Checkpoint> whole;
  for (const Checkpoint& each : checkpoints) {
    if (!each.damage) whole.push_back(each);
  }
  const auto newest = std::span(whole).last(std::min(whole.size(), kNewest));
  const std::optional<double> seconds = seconds_between(newest);
  if (!seconds) return month;
  double writes = 0;
  for (const Checkpoint& each : newest) writes += writes_of(each);
  month.saves = kMonthSeconds / *seconds;
  month.writes = month.saves * writes / static_cast<double>(newest.size());
  month.reads = month.saves * kReadsOfSave;
  month.lease_writes = kMonthSeconds / kLeaseSeconds;
  return month;
}

std::string render(const MonthInBucket& month) {
  std::string out = fmt::format("a month in the bucket: ${:.2f} for {} at ${:g} a GB\n", storage_cost(month),
                                format_size(month.bytes), month.prices.gigabyte);
  if (month.saves > 0) {
    out += fmt::format(
        "a month of training, saving every {}: ${:.2f} for {:.0f} writing and {:.0f} reading requests at ${:g} and "
        "${:g} a thousand, and ${:.2f} for the lease\n",
        interval(kMonthSeconds / month.saves), request_cost(month), month.writes, month.reads, month.prices.writes,
        month.prices.reads, lease_cost(month));
  }
  return out;
}

Json to_json(const MonthInBucket& month) {
  return {
      {"stored_bytes", month.bytes},
      {"saves", month.saves},
      {"writes", month.writes},
      {"reads", month.reads},
      {"lease_writes", month.lease_writes},
      {"prices", {{"gigabyte", month.prices.gigabyte}, {"writes", month.prices.writes}, {"reads", month.prices.reads}}},
      {"cost", {{"storage", storage_cost(month)}, {"requests", request_cost(month)}, {"lease", lease_cost(month)}}}};
}

}  // namespace bitsnap::cli
