// Encodes second moments for gradient_step: the constants with which nearly all of a sample follow exactly from the
// gradients, and the ULP distances of the elements that do not. See spec.md, "Second moments".
#include "codec/gradient_step/square_step_encode.hpp"

#include <algorithm>
#include <array>
#include <bit>

#include "base/float_mode.hpp"
#include "base/try.hpp"
#include "codec/builtin_codecs.hpp"
#include "codec/gradient_step/fit_gradient_encode.hpp"
#include "codec/gradient_step/fit_square_encode.hpp"
#include "codec/gradient_step/gradient_exceptions_encode.hpp"
#include "codec/gradient_step/gradient_step.hpp"

namespace bitsnap::codec {
namespace {

// Of chunks up to this size, the encoding itself is the estimate, also if no step is found.
constexpr std::size_t kTinySquareChunk = 1024;

// One in so many sampled elements may not follow exactly. optimizer_step stores other chunks.
constexpr std::size_t kRareSquare = 16;

constexpr SquareConstants kUsualSquare{.keep = 0.95F, .gain = 0.05F, .rate = 0.1F, .scale = 1, .bits = 8};

// Sampled elements of the chunk and its inputs. Valid while its Scratch frame is open.
struct SquareSample {
  std::span<const float> elements;
  std::array<std::span<const float>, 3> beside;
  std::array<Input, 3> inputs;
};

Result<SquareSample> take_squares(ConstByteSpan data, const EncodeContext& context, Scratch& scratch) {
  SquareSample sample;
  const std::size_t size = std::min(context.elements, kGradientRuns.total());
  const auto take = [&](ConstByteSpan bytes) -> Result<std::span<const float>> {
    BITSNAP_ASSIGN(const std::span<float> floats, scratch.take_array<float>(size));
    kGradientRuns.gather(bytes.data(), context.elements, sizeof(float), std::as_writable_bytes(floats).data());
    return std::span<const float>(floats);
  };
  BITSNAP_ASSIGN(sample.elements, take(data));
  for (std::size_t i = 0; i < sample.inputs.size(); ++i) {
    BITSNAP_ASSIGN(sample.beside[i], take(context.inputs[i].bytes));
    sample.inputs[i] = {context.inputs[i].kind, DType::f32, std::as_bytes(sample.beside[i])};
  }
  return sample;
}

// nullopt if too few elements follow exactly.
Result<std::optional<SquareConstants>> fit_square(ConstByteSpan data, const EncodeContext& context, Scratch& scratch) {
  const Scratch::Frame frame(scratch);
  BITSNAP_ASSIGN(const SquareSample sample, take_squares(data, context, scratch));
  std::optional<SquareConstants> constants;
  {
    const FloatMode mode;
    BITSNAP_ASSIGN(const auto found, fit_gradient({sample.beside[2], sample.beside[1]}, scratch));
    if (!found) return std::nullopt;
    constants = constants_of_square({sample.elements, sample.beside[0], sample.beside[1], sample.beside[2]}, *found);
  }
  if (!constants) return std::nullopt;
  BITSNAP_ASSIGN(const std::span<float> expected, scratch.take_array<float>(sample.elements.size()));
  add_squares(sample.inputs, *constants, std::as_writable_bytes(expected));
  std::size_t off = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (std::bit_cast<std::uint32_t>(expected[i]) != std::bit_cast<std::uint32_t>(sample.elements[i])) ++off;
  }
  if (off * kRareSquare > expected.size()) return std::nullopt;
  return constants;
}

Result<PayloadSize> encode_with(const SquareConstants& constants, ConstByteSpan data, const EncodeContext& context,
                                ByteSpan out, Scratch& scratch) {
  const Scratch::Frame frame(scratch);
  BITSNAP_ASSIGN(const ByteSpan expected, scratch.take(data.size()));
  add_squares(context.inputs, constants, expected);
  const bool has_exceptions = !std::ranges::equal(expected, data);
  std::byte* at = out.data();
  *at++ = static_cast<std::byte>(kSquareForm | (has_exceptions ? kGradientExceptions : 0));
  *at++ = static_cast<std::byte>(constants.bits);
  for (const float constant : {constants.keep, constants.gain, constants.rate, constants.scale}) {
    store_le(at, std::bit_cast<std::uint32_t>(constant));
    at += sizeof(std::uint32_t);
  }
  return finish_with_exceptions(data, expected, out, kSquareHeaderBytes, has_exceptions, scratch);
}

class AnalyzedSquare final : public Analysis {
 public:
  explicit AnalyzedSquare(const SquareConstants& constants) : constants_(constants) {}
  [[nodiscard]] const SquareConstants& constants() const noexcept { return constants_; }

 private:
  SquareConstants constants_;
};

}  // namespace

std::size_t max_square_size(DType dtype, std::size_t elements) noexcept {
  return kSquareHeaderBytes + ordinal_delta_encoder().max_encoded_size(dtype, elements);
}

Result<std::optional<Estimate>> analyze_square(ConstByteSpan data, const EncodeContext& context, std::size_t elements,
                                               Scratch& scratch) {
  const Scratch::Frame frame(scratch);
  BITSNAP_ASSIGN(const std::optional<SquareConstants> found, fit_square(data, context, scratch));
  if (!found && elements > kTinySquareChunk) return std::nullopt;
  BITSNAP_ASSIGN(const SquareSample sample, take_squares(data, context, scratch));
  EncodeContext sampled = context;
  sampled.elements = sample.elements.size();
  sampled.inputs = sample.inputs;
  BITSNAP_ASSIGN(const ByteSpan out, scratch.take(max_square_size(context.dtype, sampled.elements)));
  BITSNAP_ASSIGN(const PayloadSize size,
                 encode_with(found.value_or(kUsualSquare), std::as_bytes(sample.elements), sampled, out, scratch));
  if (!size) return std::nullopt;
  Estimate estimate{.payload_bytes = divide_up<std::uint64_t>(std::uint64_t{*size} * elements, sampled.elements)};
  estimate.explains_chunk = found.has_value();
  if (found && context.elements == elements) estimate.analysis = std::make_shared<const AnalyzedSquare>(*found);
  return estimate;
}

Result<PayloadSize> encode_square(ConstByteSpan data, const EncodeContext& context, ByteSpan out, Scratch& scratch) {
  if (const auto* const analyzed = static_cast<const AnalyzedSquare*>(context.analysis)) {
    return encode_with(analyzed->constants(), data, context, out, scratch);
  }
  BITSNAP_ASSIGN(const std::optional<SquareConstants> found, fit_square(data, context, scratch));
  return encode_with(found.value_or(kUsualSquare), data, context, out, scratch);
}

}  // namespace bitsnap::codec
