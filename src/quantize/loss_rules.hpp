// Which quantizer a tensor gets: the caller's rules, and behind them those of the policy.
#pragma once

#include <span>
#include <string_view>

#include <bitsnap/quantization.hpp>
#include <bitsnap/writer.hpp>

namespace bitsnap::quantize {

// Of the policies themselves; empty where nothing may be lost.
[[nodiscard]] std::span<const LossRule> preset_rules(Policy policy) noexcept;

// invalid_argument for an amount that the quantization does not know, with those it does, and for a role that it is not
// for.
[[nodiscard]] Result<void> check_rule(const LossRule& rule);

// nullptr: nothing is said, so that it is kept exact.
[[nodiscard]] const LossRule* find_rule(Role role, std::string_view name, std::span<const LossRule> rules,
                                        std::span<const LossRule> preset) noexcept;

// * stands for any letters, ? for one byte.
[[nodiscard]] bool matches_pattern(std::string_view text, std::string_view pattern) noexcept;

}  // namespace bitsnap::quantize
