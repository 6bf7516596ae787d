// The quantizer round_mantissa: floats with fewer mantissa bits. docs/spec/quantizers.md.
//
// Keeps k mantissa bits of F32, BF16 and F16: the relative error is at most 2^-(k+1), also for subnormal numbers. Of
// fp32 masters it keeps enough bits to derive the two-byte weight from what is stored. Idempotent.
#pragma once

#include "quantize/quantizer.hpp"

namespace bitsnap::quantize {

class RoundMantissa final : public Quantizer {
 public:
  // Mantissa bits of a dtype without the leading one; 0 if the dtype cannot be rounded.
  [[nodiscard]] static unsigned mantissa_bits(DType dtype) noexcept;

  // Keeps `kept` bits of F32, BF16 or F16, fewer than the dtype has.
  [[nodiscard]] static Result<RoundMantissa> of(DType dtype, unsigned kept);

  // For the fp32 master of BF16 or F16 weights: keeps `extra` more bits than the weights have, and preserves the
  // weights that the codec rounded_from derives. With 0 extra bits, masters of infinite BF16 weights stay unchanged.
  [[nodiscard]] static Result<RoundMantissa> of_master(DType weights, unsigned extra);

  [[nodiscard]] DType dtype() const noexcept { return dtype_; }
  [[nodiscard]] unsigned kept_bits() const noexcept { return kept_; }
  // BF16 or F16; opaque if the elements are not masters.
  [[nodiscard]] DType weights() const noexcept { return weights_; }

  // The largest relative error of an element that became the nearest number, and of one that could not, because that is
  // infinite or has another weight (ErrorTally::past_nearest).
  [[nodiscard]] double bound() const noexcept { return 1.0 / static_cast<double>(2U << kept_); }
  [[nodiscard]] double bound_past_nearest() const noexcept { return 2 * bound(); }

  [[nodiscard]] std::string_view name() const noexcept override { return "round_mantissa"; }

  // Accepts no other tensors.
  [[nodiscard]] Result<void> quantize(DType dtype, ByteSpan elements, std::span<const Beside> beside,
                                      ErrorTally* tally) const override;

 private:
  RoundMantissa(DType dtype, unsigned kept, DType weights) : dtype_(dtype), weights_(weights), kept_(kept) {}

  DType dtype_;
  DType weights_;
  unsigned kept_;
};

}  // namespace bitsnap::quantize
