// The quantizer update_step: Adam's first moments as multiples of a fraction of their update, computed from the stored
// second moments. docs/spec/update_step.md. The codec scaled_by stores the multiples.
//
// An update is u = (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + epsilon): the change of the parameter divided by
// the learning rate. The result for an element depends on its bits, its second moment and the parameters, so any part
// of a tensor can be quantized alone. Immutable and shared by all threads; allocates nothing. Idempotent.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

#include <bitsnap/error.hpp>
#include <bitsnap/quantization.hpp>

#include "base/bytes.hpp"
#include "codec/encoder.hpp"
#include "quantize/quantizer.hpp"

namespace bitsnap::quantize {

// The optimizer's hyperparameters at the step of the state. The caller must provide them.
struct UpdateStepParameters {
  double beta1 = 0;              // in [0, 1)
  double beta2 = 0;              // in [0, 1)
  double epsilon = 0;            // at least 0
  std::uint64_t step_count = 0;  // t, the number of steps taken; at least 1
  double update_step = 0;        // in (0, 1]
};

[[nodiscard]] inline UpdateStepParameters parameters_of(const AdamNumbers& adam, double update_step) noexcept {
  return {.beta1 = adam.beta1,
          .beta2 = adam.beta2,
          .epsilon = adam.eps,
          .step_count = adam.step,
          .update_step = update_step};
}

// Fails with invalid_argument, which names the number, if it is outside Adam's range. Any number of steps is valid.
[[nodiscard]] Result<void> check_adam(const AdamNumbers& adam);

class UpdateStep final : public Quantizer {
 public:
  // Fails with invalid_argument, which names the parameter, if it is out of range or if F32 cannot represent the
  // lattice.
  [[nodiscard]] static Result<UpdateStep> of(const UpdateStepParameters& parameters);

  // The lattice of the quantized moments, for codec::EncodeContext::lattice.
  [[nodiscard]] codec::Lattice lattice() const noexcept { return lattice_; }

  [[nodiscard]] std::string_view name() const noexcept override { return "update_step"; }

  // Replaces moments in place by the nearest multiples of their scale, up to 32,767 times it. `beside` holds their
  // stored second moments only. All elements are whole F32 without alignment that do not overlap.
  //
  // Zeros, and moments nearer to 0 than to the scale, become +0. These moments stay unchanged: infinities and NaNs;
  // moments beyond 32,767 times the scale or whose multiple would be infinite; moments whose second moment is 0,
  // negative, infinite or NaN; and moments whose scale is not a normal F32.
  [[nodiscard]] Result<void> quantize(DType dtype, ByteSpan elements, std::span<const Beside> beside,
                                      ErrorTally* tally) const override;

  // The largest change of an update of this magnitude, for the stored second moment: half of update_step, and the
  // rounding errors of F32.
  [[nodiscard]] double bound(double update) const noexcept;

  // The same if the stored second moment has a relative error of at most e = square_error. Infinity if e is 1 or more.
  [[nodiscard]] double bound(double update, double square_error) const noexcept;

  // The largest change of the next update, with the same gradient, if the stored second moment has a relative error of
  // at most e and both updates are at most `update`. Infinity if there is no bound: if e is 1 or more, or if beta2 is 0
  // and beta1 is not.
  [[nodiscard]] double next_bound(double update, double square_error) const noexcept;

  // The largest sum of the changes of all later updates, with the same gradients, if no update exceeds `update`. The
  // part of the second moment's error holds while second moments do not fall below the stored ones; the part of this
  // quantizer always holds. Infinity if beta1^2 is at least beta2 and not 0, because updates can then grow without
  // limit.
  [[nodiscard]] double cumulative_bound(double update, double square_error) const noexcept;

  // The largest possible update of Adam after `steps` steps, if moments started at zero and the betas never changed;
  // for callers that do not know the updates. It grows with the steps; it is infinity for kEver if beta1^2 is at least
  // beta2, unless both are 0.
  [[nodiscard]] double largest_update(std::uint64_t steps) const noexcept;
  [[nodiscard]] double largest_update() const noexcept { return largest_update(parameters_.step_count); }
  static constexpr std::uint64_t kEver = std::numeric_limits<std::uint64_t>::max();

 private:
  UpdateStep(const UpdateStepParameters& parameters, double correction1, double correction2,
             const codec::Lattice& lattice) noexcept
      : parameters_(parameters), correction1_(correction1), correction2_(correction2), lattice_(lattice) {}

  UpdateStepParameters parameters_;
  double correction1_;  // 1 - beta1^t
  double correction2_;  // 1 - beta2^t
  codec::Lattice lattice_;
};

}  // namespace bitsnap::quantize
