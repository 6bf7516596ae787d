// Adds up the chunks of a stream, and prints the sums.
#include "plan/choice_tally.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "plan/planner.hpp"

namespace bitsnap::plan {
namespace {

std::string format_bytes(std::uint64_t bytes) {
  if (bytes < 10'000) return fmt::format("{} B", bytes);
  if (bytes < 10'000'000) return fmt::format("{:.1f} kB", static_cast<double>(bytes) / 1e3);
  return fmt::format("{:.1f} MB", static_cast<double>(bytes) / 1e6);
}

std::string format_time(std::uint64_t ps) {
  if (ps < 10'000'000'000) return fmt::format("{:.1f} us", static_cast<double>(ps) / 1e6);
  return fmt::format("{:.1f} ms", static_cast<double>(ps) / 1e9);
}

}  // namespace

void ChoiceTally::note(const Choice& choice, std::string_view codec, std::uint64_t raw_bytes, std::string_view like) {
  ++chunks_;
  const bool was_estimated =
      std::ranges::any_of(choice.estimates, [](std::uint64_t bytes) { return bytes != kNoEstimate; });
  if (was_estimated) {
    raw_.bytes += raw_bytes;
    raw_.ps += choice.raw_ps;
    for (std::size_t i = 0; i < choice.estimates.size(); ++i) {
      const bool known = choice.estimates[i] < raw_bytes;
      totals_[i].bytes += known ? choice.estimates[i] : raw_bytes;
      totals_[i].ps += known && !choice.times.empty() ? choice.times[i] : choice.raw_ps;
      totals_[i].was_estimated |= choice.estimates[i] != kNoEstimate;
    }
  } else if (choice.is_followed) {
    if (like_.empty()) like_ = like;
  } else if (choice.candidate.encoder != nullptr) {
    ++without_estimate_;
  }
  const auto known = std::ranges::find(used_, codec, &std::pair<std::string, std::uint64_t>::first);
  if (known == used_.end()) {
    used_.emplace_back(codec, 1);
  } else {
    ++known->second;
  }
}

std::string ChoiceTally::used() const {
  std::string text;
  for (const auto& [codec, count] : used_) {
    text += fmt::format("{}{} {}/{}", text.empty() ? "" : ", ", codec, count, chunks_);
  }
  if (!like_.empty()) text += fmt::format(", as {}", like_);
  return text;
}

std::string ChoiceTally::compared(Objective objective, std::span<const std::string> names) const {
  if (raw_.bytes == 0) return {};
  const bool counts_time = objective != Objective::ratio;
  struct Place {
    std::uint64_t cost;
    std::size_t number;  // decides ties
    const Total* total;
    std::string_view name;
  };
  std::vector<Place> order;
  const auto enter = [&](const Total& total, std::string_view name) {
    order.push_back({counts_time ? total.ps : total.bytes, order.size(), &total, name});
  };
  for (std::size_t i = 0; i < totals_.size(); ++i) {
    if (totals_[i].was_estimated) enter(totals_[i], names[i]);
  }
  enter(raw_, "raw");
  std::ranges::sort(order, {}, [](const Place& place) { return std::pair(place.cost, place.number); });
  std::string text(objective_name(objective));
  std::string_view before = ": ";
  for (const Place& place : order) {
    text += fmt::format("{}{} {}", before, place.name, format_bytes(place.total->bytes));
    if (counts_time) text += fmt::format(" in {}", format_time(place.total->ps));
    before = ", ";
  }
  return text;
}

}  // namespace bitsnap::plan
