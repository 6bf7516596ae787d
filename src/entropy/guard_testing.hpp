// What the tests of kernels have in common: bytes behind a buffer, which must stay as they are.
#pragma once

#include <cstddef>

namespace bitsnap::entropy {

inline constexpr std::byte kGuard{0xa5};
inline constexpr std::size_t kGuardBytes = 64;
inline constexpr std::size_t kElementSizes[] = {1, 2, 4, 8};

}  // namespace bitsnap::entropy
