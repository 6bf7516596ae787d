// The quantizer update_step: first moments of Adam as multiples of a step of the update that they make, beside the
// second moments as they are stored. docs/spec/update_step.md. The codec scaled_by stores the multiples.
//
// An update is u = (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + epsilon): what the parameter moves by, but for the
// learning rate. What becomes of an element depends on its bits, those of its second moment and the parameters, so any
// part of a tensor can be quantized alone. Immutable, for all threads; nothing is allocated. Idempotent.
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

// Of the optimizer, at the step that the state is of. Nobody guesses them: they come from the caller.
struct UpdateStepParameters {
  double beta1 = 0;              // from 0 on, below 1
  double beta2 = 0;              // from 0 on, below 1
  double epsilon = 0;            // from 0 on
  std::uint64_t step_count = 0;  // t: how many steps were taken, at least 1
  double update_step = 0;        // above 0, at most 1
};

// invalid_argument, naming it, for a number that no Adam has. Of any count of steps.
[[nodiscard]] Result<void> check_adam(const AdamNumbers& adam);

class UpdateStep final : public Quantizer {
 public:
  // invalid_argument, naming it, for a parameter outside of its range, and for those with which no F32 tells a step.
  [[nodiscard]] static Result<UpdateStep> of(const UpdateStepParameters& parameters);

  // What moments become multiples of; for codec::EncodeContext::lattice.
  [[nodiscard]] codec::Lattice lattice() const noexcept { return lattice_; }

  [[nodiscard]] std::string_view name() const noexcept override { return "update_step"; }

  // Replaces moments, in place, by the nearest multiples of their step, up to 32,767 of them. Beside stand their stored
  // second moments, as many, and nothing else; both are whole F32 that need no alignment, and do not overlap.
  //
  // A zero of either sign becomes +0, and so does what is nearer to 0 than to a step. Kept as they are: moments that
  // are infinite or NaN, or beyond 32,767 steps, or that the multiple would be infinite of; those beside a second
  // moment that is 0, negative, infinite or NaN; and where a step is no normal F32.
  [[nodiscard]] Result<void> quantize(DType dtype, ByteSpan elements, std::span<const Beside> beside,
                                      ErrorTally* tally) const override;

  // Most that an update of that magnitude differs afterwards, the second moment being the stored one: half a step, and
  // what F32 cannot tell of so large an update.
  [[nodiscard]] double bound(double update) const noexcept;

  // The same where the stored second moment is off by a factor from 1 - e to 1 + e as well. Infinity with e of 1 and
  // more.
  [[nodiscard]] double bound(double update, double square_error) const noexcept;

  // Most that the update after this one differs from what it would have been, with the same gradient, where the stored
  // second moment is off by a factor from 1 - e to 1 + e, and this update and the next are at most so large. Infinity
  // where there is no bound: with e of 1 and more, and with a beta2 of 0 but for a beta1 of 0, too.
  [[nodiscard]] double next_bound(double update, double square_error) const noexcept;

  // Most that all later updates together differ, with the same gradients. What is due to the second moment's error
  // holds as long as second moments do not fall below what is stored; what is due to this quantizer holds always.
  // Infinity where beta1^2 is not below beta2 and not 0, as then updates can grow for ever. `update` is as large as any
  // of them.
  [[nodiscard]] double cumulative_bound(double update, double square_error) const noexcept;

  // Most that an update of Adam can be at all after so many steps, if moments began with zeros and betas were always
  // these: for callers who have not looked. It grows with the steps; infinity for kEver where beta1^2 is not below
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
