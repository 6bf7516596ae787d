// Identity of this process.
#pragma once

#include <cstdint>

namespace bitsnap::os {

// Differs between a process and the child that it forked.
[[nodiscard]] std::int64_t process_id() noexcept;

}  // namespace bitsnap::os
