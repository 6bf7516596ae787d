#include "codec/optimizer_step/step_sample_encode.hpp"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>

#include "base/try.hpp"
#include "codec/optimizer_step/optimizer_step.hpp"

namespace bitsnap::codec {
namespace {

Result<ConstByteSpan> gather_runs(ConstByteSpan bytes, DType dtype, const SpreadRuns& runs, Scratch& scratch) {
  const std::size_t width = element_size(dtype);
  const std::size_t elements = bytes.size() / width;
  BITSNAP_ASSIGN(const ByteSpan gathered, scratch.take(std::min(elements, runs.total()) * width));
  runs.gather(bytes.data(), elements, width, gathered.data());
  return gathered;
}

Result<std::span<const float>> floats_of(ConstByteSpan bytes, DType dtype, Scratch& scratch) {
  if (dtype == DType::f32) {
    return std::span(reinterpret_cast<const float*>(bytes.data()), bytes.size() / sizeof(float));
  }
  BITSNAP_ASSIGN(const std::span<float> floats, scratch.take_array<float>(bytes.size() / sizeof(std::uint16_t)));
  for (std::size_t i = 0; i < floats.size(); ++i) {
    const auto bits = load_le<std::uint16_t>(bytes.data() + i * sizeof(std::uint16_t));
    floats[i] = std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
  }
  return floats;
}

// The deltas are those of ordinal_delta.
template <typename Bits>
std::size_t bits_between(ConstByteSpan elements, ConstByteSpan expected) noexcept {
  constexpr unsigned kSignBit = 8 * sizeof(Bits) - 1;
  constexpr auto kMagnitude = static_cast<Bits>((std::uint32_t{1} << kSignBit) - 1);
  const auto reflected_at = [](ConstByteSpan bytes, std::size_t i) {
    const auto bits = load_le<Bits>(bytes.data() + i);
    return static_cast<Bits>((bits >> kSignBit) != 0 ? bits ^ kMagnitude : bits);
  };
  std::size_t bits = 0;
  for (std::size_t i = 0; i < elements.size(); i += sizeof(Bits)) {
    const auto up = static_cast<Bits>(reflected_at(elements, i) - reflected_at(expected, i));
    const auto down = static_cast<Bits>(Bits{0} - up);
    bits += static_cast<std::size_t>(std::bit_width(std::min(up, down)));
  }
  return bits;
}

}  // namespace

Result<StepSample> StepSample::take(ConstByteSpan data, const EncodeContext& context, const SpreadRuns& runs,
                                    Scratch& scratch) {
  StepSample sample;
  sample.dtype_ = context.dtype;
  BITSNAP_ASSIGN(sample.data_, gather_runs(data, context.dtype, runs, scratch));
  for (const Input& input : context.inputs) {
    BITSNAP_ASSIGN(const ConstByteSpan bytes, gather_runs(input.bytes, input.dtype, runs, scratch));
    sample.inputs_[sample.input_count_++] = {input.kind, input.dtype, bytes};
  }
  return sample;
}

Result<SampledStep> StepSample::floats(Scratch& scratch) const {
  SampledStep floats;
  BITSNAP_ASSIGN(floats.elements, floats_of(data_, dtype_, scratch));
  const std::array<std::span<const float>*, 3> beside{&floats.base, &floats.first, &floats.second};
  for (std::size_t i = 0; i < input_count_; ++i) {
    BITSNAP_ASSIGN(*beside[i], floats_of(inputs_[i].bytes, dtype_, scratch));
  }
  return floats;
}

std::size_t StepSample::bits_from(ConstByteSpan expected) const noexcept {
  return dtype_ == DType::f32 ? bits_between<std::uint32_t>(data_, expected)
                              : bits_between<std::uint16_t>(data_, expected);
}

Result<StepTrial> StepTrial::make(const StepSample& sample, Scratch& scratch) {
  BITSNAP_ASSIGN(const ByteSpan expected, scratch.take(sample.data().size()));
  return StepTrial(sample, expected);
}

std::size_t StepTrial::bits_away(StepForm form, const StepConstants& constants) const noexcept {
  predict_step(form, sample_->inputs(), constants, expected_);
  return sample_->bits_from(expected_);
}

}  // namespace bitsnap::codec
