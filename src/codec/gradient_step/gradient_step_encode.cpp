// Encodes gradient_step: the constants and numbers that explain the chunk, and the ULP distances of the few elements
// that they do not explain. See spec.md.
#include <bit>
#include <cstring>

#include "base/cpu_dispatch.hpp"
#include "base/float_mode.hpp"
#include "base/try.hpp"
#include "codec/builtin_codecs.hpp"
#include "codec/encoder.hpp"
#include "codec/gradient_step/average_step_encode.hpp"
#include "codec/gradient_step/fit_gradient_encode.hpp"
#include "codec/gradient_step/gradient_encode_kernel.hpp"
#include "codec/gradient_step/gradient_exceptions_encode.hpp"
#include "codec/gradient_step/gradient_numbers_encode.hpp"
#include "codec/gradient_step/gradient_step.hpp"
#include "codec/gradient_step/square_step_encode.hpp"

namespace bitsnap::codec {
namespace {

// What the estimate encodes of a chunk.
constexpr SpreadRuns kEstimatedMoves{.count = 64, .elements = 128, .alignment = 16};

// Numbers with so many significant bits are stored as BF16.
constexpr unsigned kBitsOfBf16 = 8;

// Numbers that are found together so that they stay in the cache before they are shortened.
constexpr std::size_t kPartNumbers = 4096;

// For smaller chunks the estimate is exact.
constexpr std::size_t kSmallGradientChunk = 2 * kEstimatedMoves.total();

// Of chunks up to this size, the encoding itself is the estimate, also if no step is found.
constexpr std::size_t kTinyGradientChunk = 1024;

// torch's step with the usual beta, of unclipped gradients.
constexpr FoundGradient kUsualStep{
    .form = GradientForm::lerp_fused, .constants = {.keep = 0.9F, .gain = 0.1F, .scale = 1}, .bits = 8};

// A chunk or a part of it. Valid while its Scratch frame is open.
struct Moves {
  ConstByteSpan elements;
  ConstByteSpan base;

  [[nodiscard]] std::size_t size() const noexcept { return elements.size() / sizeof(float); }
};

Result<Moves> take_moves(const Moves& all, const SpreadRuns& runs, Scratch& scratch) {
  if (all.size() <= runs.total()) return all;
  const std::size_t bytes = runs.total() * sizeof(float);
  BITSNAP_ASSIGN(const ByteSpan elements, scratch.take(bytes));
  BITSNAP_ASSIGN(const ByteSpan base, scratch.take(bytes));
  runs.gather(all.elements.data(), all.size(), sizeof(float), elements.data());
  runs.gather(all.base.data(), all.size(), sizeof(float), base.data());
  return Moves{elements, base};
}

Result<std::optional<FoundGradient>> fit(const Moves& all, Scratch& scratch) {
  const Scratch::Frame frame(scratch);
  const std::size_t size = std::min(all.size(), kGradientRuns.total());
  BITSNAP_ASSIGN(const std::span<float> elements, scratch.take_array<float>(size));
  BITSNAP_ASSIGN(const std::span<float> base, scratch.take_array<float>(size));
  kGradientRuns.gather(all.elements.data(), all.size(), sizeof(float), std::as_writable_bytes(elements).data());
  kGradientRuns.gather(all.base.data(), all.size(), sizeof(float), std::as_writable_bytes(base).data());
  const FloatMode mode;
  return fit_gradient({elements, base}, scratch);
}

// The numbers of a chunk, and how many elements follow from them exactly.
struct Numbers {
  GradientNumbers kind = GradientNumbers::bf16;
  ConstByteSpan bytes;
  std::size_t exact = 0;
};

// Finds the numbers of `count` elements from `first` on.
std::size_t find_part(const Moves& moves, const FoundGradient& found, std::size_t first, std::size_t count,
                      std::uint8_t* numbers) noexcept {
  const auto& kernel = kernels<GradientEncodeKernels>();
  const std::uint8_t* const elements = as_u8(moves.elements) + first * sizeof(float);
  const std::uint8_t* const base = as_u8(moves.base) + first * sizeof(float);
  const FloatMode mode;
  if (found.bits == 0) return kernel.find_shortest(found.form, elements, base, count, found.constants, numbers);
  return kernel.find(found.form, elements, base, count, found.constants, found.bits, numbers);
}

Result<Numbers> find_numbers(const Moves& moves, const FoundGradient& found, Scratch& scratch) {
  Numbers numbers;
  const std::size_t elements = moves.size();
  if (found.bits != kBitsOfBf16) {
    BITSNAP_ASSIGN(const ByteSpan wide, scratch.take(elements * sizeof(float)));
    numbers.exact = find_part(moves, found, 0, elements, reinterpret_cast<std::uint8_t*>(wide.data()));
    numbers.kind = found.bits == 0 ? GradientNumbers::sums : GradientNumbers::f32;
    numbers.bytes = wide;
    return numbers;
  }
  BITSNAP_ASSIGN(const ByteSpan halves, scratch.take(elements * sizeof(std::uint16_t)));
  BITSNAP_ASSIGN(const std::span<std::uint8_t> part, scratch.take_array<std::uint8_t>(kPartNumbers * sizeof(float)));
  for (std::size_t first = 0; first < elements; first += kPartNumbers) {
    const std::size_t count = std::min(kPartNumbers, elements - first);
    numbers.exact += find_part(moves, found, first, count, part.data());
    auto* const to = reinterpret_cast<std::uint8_t*>(halves.data()) + first * sizeof(std::uint16_t);
    kernels<GradientEncodeKernels>().upper_halves(part.data(), count, to);
  }
  numbers.bytes = halves;
  return numbers;
}

class AnalyzedGradient final : public Analysis {
 public:
  explicit AnalyzedGradient(const FoundGradient& found) : found_(found) {}
  [[nodiscard]] const FoundGradient& found() const noexcept { return found_; }

 private:
  FoundGradient found_;
};

class GradientStepEncoder final : public Encoder {
 public:
  GradientStepEncoder() noexcept : Encoder(gradient_step_decoder()) {}

  std::size_t max_encoded_size(DType dtype, std::size_t elements) const noexcept override {
    return kGradientHeaderBytes + max_numbers_size(elements) +
           ordinal_delta_encoder().max_encoded_size(dtype, elements);
  }

  bool analyzes_whole_chunks(DType) const noexcept override { return true; }

  Result<std::optional<Estimate>> analyze(ConstByteSpan data, const EncodeContext& context, std::size_t elements,
                                          Scratch& scratch) const override {
    if (are_of_square(context.inputs)) return analyze_square(data, context, elements, scratch);
    if (are_of_average(context.inputs)) return analyze_average(data, context, elements, scratch);
    const Scratch::Frame frame(scratch);
    const Moves all{data, context.inputs[0].bytes};
    BITSNAP_ASSIGN(const std::optional<FoundGradient> found, fit(all, scratch));
    if (!found && elements > kTinyGradientChunk) return std::nullopt;
    BITSNAP_ASSIGN(const Moves sample,
                   all.size() <= kSmallGradientChunk ? all : take_moves(all, kEstimatedMoves, scratch));
    BITSNAP_ASSIGN(const ByteSpan out, scratch.take(max_encoded_size(context.dtype, sample.size())));
    BITSNAP_ASSIGN(const std::optional<std::size_t> size,
                   encode_as(found.value_or(kUsualStep), sample, {}, out, scratch));
    if (!size) return std::nullopt;
    Estimate estimate{.payload_bytes = divide_up<std::uint64_t>(std::uint64_t{*size} * elements, sample.size())};
    estimate.explains_chunk = found && changes_all(*found);
    if (found && context.elements == elements) estimate.analysis = std::make_shared<const AnalyzedGradient>(*found);
    return estimate;
  }

  Result<PayloadSize> encode(ConstByteSpan data, const EncodeContext& context, ByteSpan out,
                             Scratch& scratch) const override {
    if (are_of_square(context.inputs)) return encode_square(data, context, out, scratch);
    if (are_of_average(context.inputs)) return encode_average(data, context, out, scratch);
    const Moves all{data, context.inputs[0].bytes};
    // A chunk of which nothing is known can be expressed, too: its elements are exceptions.
    std::optional<FoundGradient> found;
    if (const auto* const analyzed = static_cast<const AnalyzedGradient*>(context.analysis)) {
      found = analyzed->found();
    } else {
      BITSNAP_ASSIGN(found, fit(all, scratch));
    }
    return encode_as(found.value_or(kUsualStep), all, context.rows, out, scratch);
  }

 private:
  // Parameters change so little that a few bits may be all that changed.
  static bool changes_all(const FoundGradient& found) noexcept {
    constexpr float kHardlyChanged = 0.99F;
    return found.constants.keep <= kHardlyChanged;
  }

  static Result<PayloadSize> encode_as(const FoundGradient& found, const Moves& moves, const RowPlace& rows,
                                       ByteSpan out, Scratch& scratch) {
    const Scratch::Frame frame(scratch);
    const std::size_t elements = moves.size();
    BITSNAP_ASSIGN(const Numbers numbers, find_numbers(moves, found, scratch));
    BITSNAP_ASSIGN(const auto coded,
                   encode_numbers(numbers.kind, numbers.bytes, rows, out.subspan(kGradientHeaderBytes), scratch));
    if (!coded) return std::nullopt;
    std::byte* at = out.data();
    const bool has_exceptions = numbers.exact < elements;
    *at++ = static_cast<std::byte>(static_cast<std::uint8_t>(found.form) | (has_exceptions ? kGradientExceptions : 0));
    *at++ = static_cast<std::byte>(numbers.kind);
    *at++ = static_cast<std::byte>(coded->coder);
    for (const float constant : {found.constants.keep, found.constants.gain, found.constants.scale}) {
      store_le(at, std::bit_cast<std::uint32_t>(constant));
      at += sizeof(std::uint32_t);
    }
    store_le(at, static_cast<std::uint32_t>(coded->size));
    ByteSpan expected;
    if (has_exceptions) {
      BITSNAP_ASSIGN(expected, scratch.take(moves.elements.size()));
      add_gradient(found.form, found.constants, moves.base, numbers.kind, numbers.bytes, expected);
    }
    return finish_with_exceptions(moves.elements, expected, out, kGradientHeaderBytes + coded->size, has_exceptions,
                                  scratch);
  }
};

}  // namespace

const Encoder& gradient_step_encoder() noexcept { return only<GradientStepEncoder>(); }

}  // namespace bitsnap::codec
