// The valid amounts of each quantization, in loss rules and in files.
#pragma once

#include <bitsnap/quantization.hpp>

namespace bitsnap::tensor {

inline constexpr double kMostMantissaBits = 22;
inline constexpr double kMostMasterBits = 15;

// Valid are whole bits within their range, fractions of an update in (0, 1], 16 or 256 clusters, and for `exact`
// anything.
[[nodiscard]] bool is_amount_of(Quantization quantization, double amount) noexcept;

}  // namespace bitsnap::tensor
