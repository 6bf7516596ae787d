// Repairs of damaged stores as scenarios of the crash tests: what is damaged, what has to be saved of it, and what may
// be asked of a store whose repair was cut short.
#pragma once

#include <vector>

#include "store/crash_scenarios_testing.hpp"

namespace bitsnap::store {

[[nodiscard]] std::vector<CrashScenario> crash_repairs();

}  // namespace bitsnap::store
