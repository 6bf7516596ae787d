// Filters of system calls (seccomp), as containers have. They cannot be removed: use them in a forked child only, whose
// programs inherit them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace bitsnap::os {

struct RefusedCall {
  std::string name;
  long number = 0;
  // The call is refused only if this argument has this value.
  std::optional<std::uint32_t> argument = {};  // its index
  std::uint32_t value = 0;
};

// The calls that the engine can do without.
[[nodiscard]] std::vector<RefusedCall> refusable_calls();

// From now on the call fails with `error` in this process. False if the system refuses filters.
[[nodiscard]] bool refuse_call(const RefusedCall& call, int error);

}  // namespace bitsnap::os
