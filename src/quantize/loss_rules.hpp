// Finds the quantizer of a tensor: the caller's rules first, then those of the policy.
#pragma once

#include <span>
#include <string_view>

#include <bitsnap/quantization.hpp>
#include <bitsnap/writer.hpp>

namespace bitsnap::quantize {

// The rules of a policy; empty for lossless policies.
[[nodiscard]] std::span<const LossRule> preset_rules(Policy policy) noexcept;

// Fails with invalid_argument if the amount is invalid for the quantization, or the role has none.
[[nodiscard]] Result<void> check_rule(const LossRule& rule);

// nullptr if no rule matches; the tensor is then exact.
[[nodiscard]] const LossRule* find_rule(Role role, std::string_view name, std::span<const LossRule> rules,
                                        std::span<const LossRule> preset) noexcept;

// * matches any bytes, ? one byte.
[[nodiscard]] bool matches_pattern(std::string_view text, std::string_view pattern) noexcept;

}  // namespace bitsnap::quantize
