// What the control groups of Linux, version 1 and 2, grant to this process. Of this floor only; pure functions of the
// texts that the system shows, so that they can be tested on any.
#pragma once

#include <optional>
#include <string>

#include "base/function_ref.hpp"

namespace bitsnap::os {

// Gives the text of a file, or nothing if there is none.
using TextReader = FunctionRef<std::optional<std::string>(const std::string& path)>;

// The CPUs that the quotas of the group and of those above it allow, rounded up; nothing where there is no quota.
[[nodiscard]] std::optional<unsigned> cgroup_cpus(TextReader read);

}  // namespace bitsnap::os
