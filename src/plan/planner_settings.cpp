// Checks the settings that callers pass by value and name.
#include "plan/planner_settings.hpp"

#include <string>

#include <fmt/format.h>

#include "codec/registry_encode.hpp"
#include "container/json_text.hpp"

namespace bitsnap::plan {
namespace {

// Objective::speed: a store about as fast as a few threads can copy, and every snapshot is read back
// (docs/decisions/0011-objectives.md).
constexpr CostModel kFastStore{.store_bytes_per_second = 20'000'000'000, .restore_permille = 1000};

}  // namespace

Result<PlannerSettings> make_planner_settings(Policy policy, Objective objective, std::uint64_t store_bytes_per_second,
                                              std::string_view codec) {
  PlannerSettings settings{
      .policy = policy, .objective = objective, .model = objective == Objective::speed ? kFastStore : CostModel{}};
  if (store_bytes_per_second != 0) {
    if (store_bytes_per_second < kSlowestStore || store_bytes_per_second > kFastestStore) {
      return fail(ErrorKind::invalid_argument, fmt::format("store speed must be {} to {} bytes per second, got {}",
                                                           kSlowestStore, kFastestStore, store_bytes_per_second));
    }
    settings.model.store_bytes_per_second = store_bytes_per_second;
  }
  if (codec.empty()) return settings;
  settings.forced = codec::find_encoder(codec);
  if (settings.forced != nullptr) return settings;
  std::string known;
  for (const codec::Encoder* encoder : codec::all_encoders()) {
    known += fmt::format("{}{}", known.empty() ? "" : ", ", encoder->decoder().name());
  }
  return fail(ErrorKind::invalid_argument,
              fmt::format("unknown codec {}; expected one of {}", container::quote_name(codec), known));
}

}  // namespace bitsnap::plan
