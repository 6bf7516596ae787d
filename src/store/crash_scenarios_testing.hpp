// The operations of a store that the crash tests stop at every point of: what stands there before, and the calls.
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
  StoreOptions options;  // of who opens it afterwards
  Calls prepare;         // never fails
  Calls operate;         // opens the store, too
  // What comes after a killed `operate`, and may meet a crash of the machine itself.
  Calls go_on;
  // Empty if all holds that has to, wherever it was stopped.
  Law broken_law = store::broken_law;
};

[[nodiscard]] const std::vector<CrashScenario>& crash_scenarios();

// For the name of a test.
[[nodiscard]] const CrashScenario& crash_scenario(const std::string& name);

}  // namespace bitsnap::store
