// Repairs of damaged stores, as scenarios of the crash tests: the damage, what a repair must save, and what must hold
// if the repair is interrupted.
#pragma once

#include <vector>

#include "store/crash_scenarios_testing.hpp"

namespace bitsnap::store {

[[nodiscard]] std::vector<CrashScenario> crash_repairs();

}  // namespace bitsnap::store
