// What the control groups of Linux, version 1 and 2, grant to this process. Of this floor only; pure functions of the
// texts that the system shows, so that they can be tested on any.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/function_ref.hpp"

namespace bitsnap::os {

// Gives the text of a file, or nothing if there is none.
using TextReader = FunctionRef<std::optional<std::string>(const std::string& path)>;

// Calls it for the directory of the group that the controller ("cpu", "memory") has this process in, and for those of
// all groups above, as far as they can be seen; `unified` for groups of version 2.
using GroupVisitor = FunctionRef<void(const std::string& directory, bool unified)>;
void visit_cgroups(std::string_view controller, TextReader read, GroupVisitor visit);

// The CPUs that the quotas of the group and of those above it allow, rounded up; nothing where there is no quota.
[[nodiscard]] std::optional<unsigned> cgroup_cpus(TextReader read);

}  // namespace bitsnap::os
