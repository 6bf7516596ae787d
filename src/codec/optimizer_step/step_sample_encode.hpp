// Sampled elements of a chunk and of its inputs, and how far predictions are from them. Used by one thread at a time.
#pragma once

#include <array>
#include <cstddef>
#include <span>

#include <bitsnap/error.hpp>

#include "base/bytes.hpp"
#include "base/scratch.hpp"
#include "base/spread_runs.hpp"
#include "codec/encoder.hpp"
#include "codec/optimizer_step/fit_step_encode.hpp"
#include "codec/optimizer_step/step_prediction_kernel.hpp"

namespace bitsnap::codec {

// Valid while its Scratch frame is open.
class StepSample {
 public:
  // The elements of these runs; all elements if there are no more.
  static Result<StepSample> take(ConstByteSpan data, const EncodeContext& context, const SpreadRuns& runs,
                                 Scratch& scratch);

  [[nodiscard]] DType dtype() const noexcept { return dtype_; }
  [[nodiscard]] std::size_t elements() const noexcept { return data_.size() / element_size(dtype_); }
  [[nodiscard]] ConstByteSpan data() const noexcept { return data_; }
  [[nodiscard]] std::span<const Input> inputs() const noexcept { return std::span(inputs_).first(input_count_); }

  // The same elements as floats. Takes memory for BF16.
  [[nodiscard]] Result<SampledStep> floats(Scratch& scratch) const;

  // The number of bits of the ULP distances of all elements from `expected`.
  [[nodiscard]] std::size_t bits_from(ConstByteSpan expected) const noexcept;
  [[nodiscard]] std::size_t bits_from_base() const noexcept { return bits_from(inputs_[0].bytes); }

 private:
  DType dtype_ = DType::opaque;
  ConstByteSpan data_;
  std::array<Input, 3> inputs_;
  std::size_t input_count_ = 0;
};

// Predicts a sample again and again, in memory of its own. Valid while its Scratch frame is open.
class StepTrial {
 public:
  static Result<StepTrial> make(const StepSample& sample, Scratch& scratch);

  // The bits of the distances from the prediction.
  [[nodiscard]] std::size_t bits_away(StepForm form, const StepConstants& constants) const noexcept;

 private:
  StepTrial(const StepSample& sample, ByteSpan expected) noexcept : sample_(&sample), expected_(expected) {}

  const StepSample* sample_;
  ByteSpan expected_;
};

}  // namespace bitsnap::codec
