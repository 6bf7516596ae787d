// Random numbers for names that must not collide. Nothing that is stored may depend on them.
#pragma once

#include <cstdint>

namespace bitsnap::os {

// From the system's generator. Thread-safe.
[[nodiscard]] std::uint64_t random_u64() noexcept;

}  // namespace bitsnap::os
