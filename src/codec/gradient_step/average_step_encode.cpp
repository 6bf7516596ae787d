// Encodes averages of weights for gradient_step: the rate with which nearly all of a sample follow exactly from the
// weights, and the ULP distances of the elements that do not. See spec.md, "Averages".
#include "codec/gradient_step/average_step_encode.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "base/float_mode.hpp"
#include "base/try.hpp"
#include "codec/builtin_codecs.hpp"
#include "codec/gradient_step/fit_gradient_encode.hpp"
#include "codec/gradient_step/gradient_exceptions_encode.hpp"
#include "codec/gradient_step/gradient_step.hpp"

namespace bitsnap::codec {
namespace {

// Of chunks up to this size, the encoding itself is the estimate, also if no rate is found.
constexpr std::size_t kTinyAverageChunk = 1024;

// Of this many sampled elements, at most one may differ from its expected value.
constexpr std::size_t kRareAverage = 4;

constexpr AverageConstants kUsualAverage{.form = GradientForm::lerp_fused, .keep = 0.999F, .gain = 0.001F};

// Sampled elements of the chunk and its inputs. Valid while its Scratch frame is open.
struct AverageSample {
  std::span<const float> elements;
  std::span<const float> base;
  std::span<const float> weights;
  std::array<Input, 2> inputs;
};

Result<AverageSample> take_averages(ConstByteSpan data, const EncodeContext& context, Scratch& scratch) {
  const std::size_t size = std::min(context.elements, kGradientRuns.total());
  const auto take = [&](ConstByteSpan bytes) -> Result<std::span<const float>> {
    BITSNAP_ASSIGN(const std::span<float> floats, scratch.take_array<float>(size));
    kGradientRuns.gather(bytes.data(), context.elements, sizeof(float), std::as_writable_bytes(floats).data());
    return std::span<const float>(floats);
  };
  AverageSample sample;
  BITSNAP_ASSIGN(sample.elements, take(data));
  BITSNAP_ASSIGN(sample.base, take(context.inputs[0].bytes));
  BITSNAP_ASSIGN(sample.weights, take(context.inputs[1].bytes));
  sample.inputs = {Input{InputKind::base, DType::f32, std::as_bytes(sample.base)},
                   Input{InputKind::peer, DType::f32, std::as_bytes(sample.weights)}};
  return sample;
}

// The share of the way to the weights that the elements went, by least squares; 0 if there is none.
double rate_of(const AverageSample& sample) noexcept {
  double products = 0;
  double squares = 0;
  for (std::size_t i = 0; i < sample.elements.size(); ++i) {
    const auto x = static_cast<double>(sample.base[i]);
    const double way = static_cast<double>(sample.weights[i]) - x;
    const double gone = static_cast<double>(sample.elements[i]) - x;
    if (!std::isfinite(way * gone)) continue;
    products += way * gone;
    squares += way * way;
  }
  const double rate = squares > 0 ? products / squares : 0;
  return rate > 0 && rate < 1 ? rate : 0;
}

// Rounds a positive number to a number of significant digits.
double with_digits(double number, int digits) noexcept {
  double unit = 1;  // exact powers of ten, so the quotient is correctly rounded
  while (number * unit < std::pow(10.0, digits - 1)) unit *= 10;
  return std::round(number * unit) / unit;
}

std::size_t exact_with(const AverageConstants& constants, std::span<const Input> inputs,
                       std::span<const float> elements, std::span<float> expected) noexcept {
  add_average(inputs, constants, std::as_writable_bytes(expected));
  std::size_t exact = 0;
  for (std::size_t i = 0; i < elements.size(); ++i) {
    exact += std::bit_cast<std::uint32_t>(expected[i]) == std::bit_cast<std::uint32_t>(elements[i]) ? 1U : 0U;
  }
  return exact;
}

// Elements that tell rates apart: those whose weights differ from them, from everywhere in the sample.
struct MovedAverages {
  std::span<const float> elements;
  std::array<Input, 2> inputs;
};

Result<MovedAverages> take_moved(const AverageSample& sample, Scratch& scratch) {
  constexpr std::size_t kMost = 512;
  const std::size_t size = sample.elements.size();
  BITSNAP_ASSIGN(const std::span<float> elements, scratch.take_array<float>(std::min(size, kMost)));
  BITSNAP_ASSIGN(const std::span<float> base, scratch.take_array<float>(elements.size()));
  BITSNAP_ASSIGN(const std::span<float> weights, scratch.take_array<float>(elements.size()));
  std::size_t taken = 0;
  Places places(size);
  for (std::size_t n = 0; n < size && taken < elements.size(); ++n) {
    const std::size_t at = places.next();
    if (sample.weights[at] == sample.base[at]) continue;
    elements[taken] = sample.elements[at];
    base[taken] = sample.base[at];
    weights[taken++] = sample.weights[at];
  }
  return MovedAverages{elements.first(taken),
                       {Input{InputKind::base, DType::f32, std::as_bytes(base.first(taken))},
                        Input{InputKind::peer, DType::f32, std::as_bytes(weights.first(taken))}}};
}

// nullopt if too few elements follow exactly.
Result<std::optional<AverageConstants>> fit_average(const AverageSample& sample, Scratch& scratch) {
  constexpr GradientForm kForms[] = {GradientForm::lerp_fused, GradientForm::lerp, GradientForm::add_fused,
                                     GradientForm::decay_fused, GradientForm::decay_and_add};
  constexpr int kSteps[] = {0, 1, -1};
  constexpr int kMostDigits = 3;  // of a rate that people choose
  constexpr double kLeastRate = 1e-6;
  const double rate = rate_of(sample);
  if (rate < kLeastRate) return std::nullopt;
  const Scratch::Frame frame(scratch);
  BITSNAP_ASSIGN(const MovedAverages moved, take_moved(sample, scratch));
  const std::size_t size = moved.elements.size();
  BITSNAP_ASSIGN(const std::span<float> expected, scratch.take_array<float>(size));
  std::optional<AverageConstants> best;
  std::size_t most = size - size / kRareAverage - 1;
  for (int digits = 1; digits <= kMostDigits + 1 && most < size; ++digits) {
    const double near = digits > kMostDigits ? rate : with_digits(rate, digits);
    for (const GradientForm form : kForms) {
      // One step of the last place of k counts, and a rate that is known by least squares may miss it.
      for (const int steps : kSteps) {
        if (steps != 0 && digits <= kMostDigits) continue;
        const AverageConstants constants{form, stepped(static_cast<float>(1 - near), steps), static_cast<float>(near)};
        const std::size_t exact = exact_with(constants, moved.inputs, moved.elements, expected);
        if (exact <= most) continue;
        most = exact;
        best = constants;
      }
    }
  }
  return best;
}

Result<PayloadSize> encode_with(const AverageConstants& constants, ConstByteSpan data, const EncodeContext& context,
                                ByteSpan out, Scratch& scratch) {
  const Scratch::Frame frame(scratch);
  BITSNAP_ASSIGN(const ByteSpan expected, scratch.take(data.size()));
  add_average(context.inputs, constants, expected);
  const bool has_exceptions = !std::ranges::equal(expected, data);
  out[0] = static_cast<std::byte>(kAverageForm | (has_exceptions ? kGradientExceptions : 0));
  out[1] = static_cast<std::byte>(constants.form);
  store_le(out.data() + 2, std::bit_cast<std::uint32_t>(constants.keep));
  store_le(out.data() + 6, std::bit_cast<std::uint32_t>(constants.gain));
  return finish_with_exceptions(data, expected, out, kAverageHeaderBytes, has_exceptions, scratch);
}

class AnalyzedAverage final : public Analysis {
 public:
  explicit AnalyzedAverage(const AverageConstants& constants) : constants_(constants) {}
  [[nodiscard]] const AverageConstants& constants() const noexcept { return constants_; }

 private:
  AverageConstants constants_;
};

}  // namespace

std::size_t max_average_size(DType dtype, std::size_t elements) noexcept {
  return kAverageHeaderBytes + ordinal_delta_encoder().max_encoded_size(dtype, elements);
}

Result<std::optional<Estimate>> analyze_average(ConstByteSpan data, const EncodeContext& context, std::size_t elements,
                                                Scratch& scratch) {
  const Scratch::Frame frame(scratch);
  BITSNAP_ASSIGN(const AverageSample sample, take_averages(data, context, scratch));
  BITSNAP_ASSIGN(const std::optional<AverageConstants> found, fit_average(sample, scratch));
  if (!found && elements > kTinyAverageChunk) return std::nullopt;
  EncodeContext sampled = context;
  sampled.elements = sample.elements.size();
  sampled.inputs = sample.inputs;
  BITSNAP_ASSIGN(const ByteSpan out, scratch.take(max_average_size(context.dtype, sampled.elements)));
  BITSNAP_ASSIGN(const PayloadSize size,
                 encode_with(found.value_or(kUsualAverage), std::as_bytes(sample.elements), sampled, out, scratch));
  if (!size) return std::nullopt;
  Estimate estimate{.payload_bytes = divide_up<std::uint64_t>(std::uint64_t{*size} * elements, sampled.elements)};
  estimate.explains_chunk = found.has_value();
  if (found && context.elements == elements) estimate.analysis = std::make_shared<const AnalyzedAverage>(*found);
  return estimate;
}

Result<PayloadSize> encode_average(ConstByteSpan data, const EncodeContext& context, ByteSpan out, Scratch& scratch) {
  if (const auto* const analyzed = static_cast<const AnalyzedAverage*>(context.analysis)) {
    return encode_with(analyzed->constants(), data, context, out, scratch);
  }
  const Scratch::Frame frame(scratch);
  BITSNAP_ASSIGN(const AverageSample sample, take_averages(data, context, scratch));
  BITSNAP_ASSIGN(const std::optional<AverageConstants> found, fit_average(sample, scratch));
  return encode_with(found.value_or(kUsualAverage), data, context, out, scratch);
}

}  // namespace bitsnap::codec
