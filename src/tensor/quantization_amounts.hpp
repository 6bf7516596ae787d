// Which amounts a quantization knows: what rules may ask for, and what files may say that was done.
#pragma once

#include <bitsnap/quantization.hpp>

namespace bitsnap::tensor {

inline constexpr double kMostMantissaBits = 22;
inline constexpr double kMostMasterBits = 15;

// Whole bits in their range, parts of an update above 0 and to 1, 16 or 256 clusters; of `exact` any.
[[nodiscard]] bool is_amount_of(Quantization quantization, double amount) noexcept;

}  // namespace bitsnap::tensor
