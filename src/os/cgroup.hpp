// What Linux control groups, version 1 and 2, grant to this process. Used by src/os only. The functions depend only on
// the texts that the system shows in files, so tests can pass any.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/function_ref.hpp"

namespace bitsnap::os {

// Returns the text of a file; nullopt if it does not exist.
using TextReader = FunctionRef<std::optional<std::string>(const std::string& path)>;

// Calls `visit` for the directory of this process's group under the controller ("cpu", "memory"), and for those of all
// groups above it that are visible. `unified`: a group of version 2.
using GroupVisitor = FunctionRef<void(const std::string& directory, bool unified)>;
void visit_cgroups(std::string_view controller, TextReader read, GroupVisitor visit);

// The number of CPUs that the quotas of the group and of those above it allow, rounded up; nullopt without a quota.
[[nodiscard]] std::optional<unsigned> cgroup_cpus(TextReader read);

}  // namespace bitsnap::os
