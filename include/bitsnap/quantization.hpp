// Loss that was asked for: which tensors may be replaced by nearby ones that take less, by how much, and what was
// reached. docs/spec/quantizers.md.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <bitsnap/error.hpp>
#include <bitsnap/error_tally.hpp>
#include <bitsnap/tensor.hpp>

namespace bitsnap {

// What becomes of elements before they are stored.
enum class Quantization : std::uint8_t {
  exact,          // nothing
  mantissa_bits,  // F32, BF16 and F16 keep so many bits of their mantissa
  master_bits,    // fp32 masters keep so many bits beyond the mantissa of their weight, and round to it as before
  update_step,    // first moments of Adam become multiples of so much of the update that they make; needs AdamNumbers
  clusters,       // F32 become one of 256 numbers of their cluster, of which there are 16 or 256
};

[[nodiscard]] std::string_view quantization_name(Quantization quantization) noexcept;
[[nodiscard]] std::optional<Quantization> quantization_from_name(std::string_view name) noexcept;

// Which tensors may lose what. Of several rules the first that fits a tensor holds. What a rule does not apply to, as
// clusters do not to integers, and tensors below 4 KiB, are kept exact.
struct LossRule {
  std::optional<Role> role = {};  // nullopt: any
  std::string name = "*";         // a pattern: * stands for any letters, ? for one
  Quantization quantization = Quantization::exact;
  double amount = 0;  // bits, part of an update, or the number of clusters

  friend bool operator==(const LossRule&, const LossRule&) = default;
};

// "exp_avg_sq=mantissa_bits:3", "*:*.router.*=exact": a role or *, a pattern for names that may be left out, and what
// is to become of them. invalid_argument for any other text and for amounts out of range, with those that are in it.
[[nodiscard]] Result<LossRule> parse_loss_rule(std::string_view text);
[[nodiscard]] std::string format_loss_rule(const LossRule& rule);

// Whether a rule is for tensors of that role and name. What fits none of a state may be a slip of whoever wrote it.
[[nodiscard]] bool fits(const LossRule& rule, Role role, std::string_view name) noexcept;

// What Adam's next update is computed with, once the moments are those of `step`.
struct AdamNumbers {
  double beta1 = 0;
  double beta2 = 0;
  double epsilon = 0;
  std::uint64_t step = 0;  // steps that were taken; with none, moments are kept exact

  friend bool operator==(const AdamNumbers&, const AdamNumbers&) = default;
};

// How far updates moved: u = (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + epsilon), without a unit, from both
// moments as they were and as they are stored. One in 16 elements is looked at; where u is not finite it does not
// count.
struct UpdateErrors {
  std::uint64_t elements = 0;
  double largest = 0;     // of the differences
  double sum = 0;         // of the differences
  double sum_square = 0;  // of the differences squared
  double sum_update = 0;  // of the updates as they were, by magnitude
  double sum_update_square = 0;

  friend bool operator==(const UpdateErrors&, const UpdateErrors&) = default;
};

// What a quantizer promised of a tensor, and what it did to it.
struct LossReport {
  Quantization quantization = Quantization::exact;
  double amount = 0;
  // Most that an element can be off, but for those past nearest, which may be twice that: of its own magnitude
  // (mantissa_bits, master_bits), in its tensor's unit (clusters), or of the update that it makes, the stored
  // second moment's error included (update_step): for updates as large as Adam's can be. nullopt: there is no bound, as
  // beside second moments that are stored by clusters.
  std::optional<double> bound = {};
  std::optional<AdamNumbers> adam = {};
  // With the second moments' own error, for updates as large as Adam's can be: most that the next update is off, and
  // most that all later ones together are. nullopt: there is no such bound, or it is not known.
  std::optional<double> next_update_bound = {};
  std::optional<double> all_updates_bound = {};
  ErrorTally reached = {};
  UpdateErrors updates = {};  // of first moments whose AdamNumbers are known

  friend bool operator==(const LossReport&, const LossReport&) = default;
};

}  // namespace bitsnap
