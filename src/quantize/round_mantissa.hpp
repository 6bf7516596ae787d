// The quantizer round_mantissa: floats of fewer bits. docs/spec/quantizers.md.
//
// Of F32, BF16 and F16, k bits of the mantissa are kept: relative error at most 2^-(k+1), also of subnormal numbers.
// For fp32 masters, as many that the weight of two bytes can still be had from what is stored. Idempotent.
#pragma once

#include "quantize/quantizer.hpp"

namespace bitsnap::quantize {

class RoundMantissa final : public Quantizer {
 public:
  // Bits of the mantissa that a dtype has, without the leading one; 0 where it cannot be rounded.
  [[nodiscard]] static unsigned mantissa_bits(DType dtype) noexcept;

  // Keeps `kept` bits of F32, BF16 or F16: fewer than it has.
  [[nodiscard]] static Result<RoundMantissa> of(DType dtype, unsigned kept);

  // For the fp32 master of weights of BF16 or F16: keeps `extra` bits more than the weights have, and what they are
  // when the master is rounded, as the codec rounded_from does. With 0 extra bits, masters of infinite BF16
  // weights stay as they are.
  [[nodiscard]] static Result<RoundMantissa> of_master(DType weights, unsigned extra);

  [[nodiscard]] DType dtype() const noexcept { return dtype_; }
  [[nodiscard]] unsigned kept_bits() const noexcept { return kept_; }
  // BF16 or F16; opaque where these are not masters.
  [[nodiscard]] DType weights() const noexcept { return weights_; }

  // Most that the relative error of an element can be: of those that went to the nearest, and of those that could not,
  // because it is infinite or has another weight (ErrorTally::past_nearest).
  [[nodiscard]] double bound() const noexcept { return 1.0 / static_cast<double>(2U << kept_); }
  [[nodiscard]] double bound_past_nearest() const noexcept { return 2 * bound(); }

  [[nodiscard]] std::string_view name() const noexcept override { return "round_mantissa"; }

  // Takes nothing beside them.
  [[nodiscard]] Result<void> quantize(DType dtype, ByteSpan elements, std::span<const Beside> beside,
                                      ErrorTally* tally) const override;

 private:
  RoundMantissa(DType dtype, unsigned kept, DType weights) : dtype_(dtype), weights_(weights), kept_(kept) {}

  DType dtype_;
  DType weights_;
  unsigned kept_;
};

}  // namespace bitsnap::quantize
