// The process-wide factor of the limits for reading.
#include <atomic>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <string_view>
#include <system_error>

#include <bitsnap/limits.hpp>

namespace bitsnap {
namespace {

bool is_valid(double factor) noexcept { return std::isfinite(factor) && factor > 0; }

double from_environment() noexcept {
  const char* const variable = std::getenv("BITSNAP_MAX_COST");  // NOLINT(concurrency-mt-unsafe): read once
  const std::string_view text = variable != nullptr ? variable : "";
  double factor = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), factor);
  return error == std::errc() && stop == text.data() + text.size() && is_valid(factor) ? factor : 1;
}

std::atomic<double>& current_max_cost() noexcept {
  static std::atomic<double> factor{from_environment()};
  return factor;
}

}  // namespace

double max_cost() noexcept { return current_max_cost().load(std::memory_order_relaxed); }

bool set_max_cost(double factor) noexcept {
  if (!is_valid(factor)) return false;
  current_max_cost().store(factor, std::memory_order_relaxed);
  return true;
}

}  // namespace bitsnap
