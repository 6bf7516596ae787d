// Loss on request: rules that say which tensors a quantizer may change and by how much, and the errors that it caused.
// docs/spec/quantizers.md specifies the quantizers.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <bitsnap/error.hpp>
#include <bitsnap/error_tally.hpp>
#include <bitsnap/tensor.hpp>

namespace bitsnap {

// How elements change before they are stored. N and X stand for the amount of the rule.
enum class Quantization : std::uint8_t {
  exact,          // not at all
  mantissa_bits,  // F32, BF16 and F16 are rounded to N bits of mantissa, 0 to 22
  master_bits,    // F32 masters are rounded to the mantissa of their BF16 or F16 weight and N more bits, 0 to 15; they
                  // still round to the same weight
  update_step,    // first moments of Adam become multiples of X (0 < X <= 1) times the update that they produce; needs
                  // AdamNumbers
  clusters,       // F32 elements become one of 256 values of their cluster; there are N = 16 or 256 clusters. The
                  // quantization of optimizer states of BitSnap (arXiv 2511.12376), reconstructed from the paper
};

[[nodiscard]] std::string_view quantization_name(Quantization quantization) noexcept;
[[nodiscard]] std::optional<Quantization> quantization_from_name(std::string_view name) noexcept;

// Which tensors may lose what. The first rule that matches a tensor applies. A tensor stays exact if it is smaller than
// 4 KiB or if the quantization does not accept its dtype.
struct LossRule {
  std::optional<Role> role = {};  // nullopt: any
  std::string name = "*";         // a pattern: * matches any characters, ? matches one byte
  Quantization quantization = Quantization::exact;
  double amount = 0;  // N or X of the quantization; 0 for `exact`

  friend bool operator==(const LossRule&, const LossRule&) = default;
};

// Parses ROLE[:PATTERN]=QUANTIZATION[:AMOUNT], where ROLE is a role or *: "exp_avg_sq=mantissa_bits:3",
// "*:*.router.*=exact". invalid_argument for any other text, and for an amount out of range.
[[nodiscard]] Result<LossRule> parse_loss_rule(std::string_view text);
[[nodiscard]] std::string format_loss_rule(const LossRule& rule);

// Whether the rule matches a tensor of this role and name. A rule that matches no tensor of a state may be a typing
// error.
[[nodiscard]] bool fits(const LossRule& rule, Role role, std::string_view name) noexcept;

// The hyperparameters of Adam (arXiv 1412.6980), and the number of the last step that the moments include.
struct AdamNumbers {
  double beta1 = 0;
  double beta2 = 0;
  double eps = 0;
  std::uint64_t step = 0;  // steps taken so far, t below; with 0, moments stay exact

  friend bool operator==(const AdamNumbers&, const AdamNumbers&) = default;
};

// Errors of Adam's updates u = (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + eps), without a unit. The error of
// an element is |u' - u|: u is computed from the exact moments m and v, and u' from the stored ones. Every 16th element
// is sampled; elements whose u or u' is not finite are left out.
struct UpdateErrors {
  std::uint64_t elements = 0;  // sampled
  double largest = 0;          // of the errors
  double sum = 0;              // of the errors
  double sum_square = 0;       // of the squares of the errors
  double sum_update = 0;       // of |u|
  double sum_update_square = 0;

  friend bool operator==(const UpdateErrors&, const UpdateErrors&) = default;
};

// The bounds that a quantizer guarantees for a tensor, and the errors that it caused.
struct LossReport {
  Quantization quantization = Quantization::exact;
  double amount = 0;
  // The largest error of an element; twice that for the elements that `reached.past_nearest` counts. The error is
  // relative (mantissa_bits, master_bits), absolute (clusters), or that of the update that the element produces,
  // including the error of the stored second moment, for updates as large as Adam's can be (update_step). nullopt:
  // there is no bound, as when the second moments are stored as clusters.
  std::optional<double> bound = {};
  std::optional<AdamNumbers> adam = {};
  // The largest error of the next update, and of the sum of all later updates, including the error of the second
  // moments, for updates as large as Adam's can be. nullopt: there is no such bound, or it is unknown.
  std::optional<double> next_update_bound = {};
  std::optional<double> all_updates_bound = {};
  ErrorTally reached = {};
  UpdateErrors updates = {};  // for first moments with known AdamNumbers

  friend bool operator==(const LossReport&, const LossReport&) = default;
};

}  // namespace bitsnap
