// Making and removing branches, as scenarios of the crash tests.
#pragma once

#include <vector>

#include "store/crash_scenarios_testing.hpp"

namespace bitsnap::store {

[[nodiscard]] std::vector<CrashScenario> crash_branches();

}  // namespace bitsnap::store
