// The operations of a store that the crash tests stop at every point: the store before the operation, and the calls.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <bitsnap/store.hpp>

#include "os/file_system_fake.hpp"
#include "store/store_laws_testing.hpp"

namespace bitsnap::store {

struct CrashScenario {
  using Calls = std::function<Result<void>(os::FileSystem&, Journal&)>;
  using Law = std::function<std::string(os::FakeFileSystem&, const std::vector<TestRun>& allowed, const StoreOptions&)>;

  std::string name;
  StoreOptions options;  // of the handle that opens the store afterwards
  Calls prepare;         // must not fail
  Calls operate;         // includes opening the store
  // Runs after `operate` was killed. The machine may crash during these calls, too.
  Calls go_on;
  // Checks the store, wherever `operate` was stopped. Returns an empty string if all laws hold.
  Law broken_law = store::broken_law;
};

[[nodiscard]] const std::vector<CrashScenario>& crash_scenarios();

// Finds a scenario by its name, which is a test parameter.
[[nodiscard]] const CrashScenario& crash_scenario(const std::string& name);

}  // namespace bitsnap::store
