// Writes the numbers of a gradient step: spec.md, "Numbers".
#include "codec/gradient_step/gradient_numbers_encode.hpp"

#include <algorithm>
#include <bit>

#include "base/cpu_dispatch.hpp"
#include "base/spread_runs.hpp"
#include "base/try.hpp"
#include "codec/builtin_codecs.hpp"
#include "codec/gradient_step/gradient_encode_kernel.hpp"
#include "entropy/class_lanes_encode.hpp"
#include "entropy/class_tables_encode.hpp"

namespace bitsnap::codec {
namespace {

// What the tables of lower halves are chosen from.
constexpr SpreadRuns kSampledSums{.count = 64, .elements = 128};

// factored_split is several times slower than float_split, so it has to save one part in this many.
constexpr std::uint64_t kPerFactoredGain = 32;

// Of fewer numbers, factored_split would hardly pay for its scales.
constexpr std::size_t kFewNumbers = 2 * kSampledSums.total();

// factored_split is smaller if the gradients of rows or columns differ in size.
Result<const Encoder*> choose_coder(ConstByteSpan numbers, const EncodeContext& context, Scratch& scratch) {
  const Encoder* const split = &float_split_encoder();
  const Encoder* const factored = &factored_split_encoder();
  if (context.elements <= kFewNumbers) return split;
  BITSNAP_ASSIGN(const auto of_split, split->analyze(numbers, context, context.elements, scratch));
  BITSNAP_ASSIGN(const auto of_factored, factored->analyze(numbers, context, context.elements, scratch));
  if (!of_factored) return split;
  const std::uint64_t least = of_factored->payload_bytes + of_factored->payload_bytes / kPerFactoredGain;
  return !of_split || least < of_split->payload_bytes ? factored : split;
}

Result<std::optional<CodedNumbers>> encode_with_coder(DType dtype, ConstByteSpan numbers, const RowPlace& rows,
                                                      ByteSpan out, Scratch& scratch) {
  const EncodeContext context{{.dtype = dtype, .elements = numbers.size() / element_size(dtype)}, rows};
  BITSNAP_ASSIGN(const Encoder* const coder, choose_coder(numbers, context, scratch));
  BITSNAP_ASSIGN(const PayloadSize size, coder->encode(numbers, context, out, scratch));
  if (!size) return std::nullopt;
  return CodedNumbers{coder->decoder().id(), *size};
}

// The halves of numbers: the upper ones as BF16, and the lower ones as values.
struct Halves {
  ByteSpan upper;
  std::span<std::uint16_t> lower;
  std::span<std::uint8_t> contexts;
  std::uint8_t top = 0;
};

Result<Halves> split_numbers(ConstByteSpan numbers, Scratch& scratch) {
  const std::size_t elements = numbers.size() / sizeof(float);
  // The last round of lanes is complete.
  const std::size_t room = divide_up(elements, entropy::kRansRoundElements) * entropy::kRansRoundElements;
  Halves halves;
  BITSNAP_ASSIGN(halves.upper, scratch.take(elements * sizeof(std::uint16_t)));
  BITSNAP_ASSIGN(halves.lower, scratch.take_array<std::uint16_t>(room));
  BITSNAP_ASSIGN(halves.contexts, scratch.take_array<std::uint8_t>(room));
  auto* const upper = reinterpret_cast<std::uint8_t*>(halves.upper.data());
  halves.top = kernels<GradientEncodeKernels>().split_halves(as_u8(numbers), elements, upper, halves.lower.data());
  kernels<GradientStepKernels>().half_contexts(upper, elements, halves.top, halves.contexts.data());
  std::ranges::fill(halves.contexts.subspan(elements), std::uint8_t{0});
  return halves;
}

Result<entropy::ClassTables> choose_tables(const Halves& halves, std::size_t elements, Scratch& scratch) {
  const Scratch::Frame frame(scratch);
  const std::size_t size = std::min(elements, kSampledSums.total());
  BITSNAP_ASSIGN(const std::span<std::uint16_t> values, scratch.take_array<std::uint16_t>(size));
  BITSNAP_ASSIGN(const std::span<std::uint8_t> contexts, scratch.take_array<std::uint8_t>(size));
  kSampledSums.gather(std::as_bytes(halves.lower).data(), elements, sizeof(std::uint16_t),
                      std::as_writable_bytes(values).data());
  kSampledSums.gather(std::as_bytes(halves.contexts).data(), elements, 1, std::as_writable_bytes(contexts).data());
  return entropy::choose_class_tables({.contexts = contexts, .values = values, .others = {}, .elements = elements})
      .tables;
}

Result<std::optional<CodedNumbers>> encode_sums(ConstByteSpan numbers, const RowPlace& rows, ByteSpan out,
                                                Scratch& scratch) {
  const Scratch::Frame frame(scratch);
  const std::size_t elements = numbers.size() / sizeof(float);
  BITSNAP_ASSIGN(const Halves halves, split_numbers(numbers, scratch));
  BITSNAP_ASSIGN(const auto upper,
                 encode_with_coder(DType::bf16, halves.upper, rows, out.subspan(kSumsHeaderBytes), scratch));
  if (!upper) return std::nullopt;
  store_le(out.data(), static_cast<std::uint32_t>(upper->size));
  out[sizeof(std::uint32_t)] = static_cast<std::byte>(halves.top);

  BITSNAP_ASSIGN(const entropy::ClassTables tables, choose_tables(halves, elements, scratch));
  const std::size_t rounds = divide_up(elements, entropy::kRansRoundElements);
  entropy::ClassLanesEncoder lanes;
  BITSNAP_TRY(lanes.open(tables, rounds, scratch));
  std::ranges::fill(halves.lower.subspan(elements), lanes.cheapest_value(0));
  lanes.encode(halves.contexts.data(), halves.lower.data(), rounds, {});
  const std::size_t before = kSumsHeaderBytes + upper->size;
  const std::size_t size = before + lanes.finish();
  if (size >= numbers.size()) return std::nullopt;
  lanes.write(out.data() + before);
  return CodedNumbers{upper->coder, size};
}

}  // namespace

std::size_t max_numbers_size(std::size_t elements) noexcept {
  std::size_t most = elements * sizeof(float);  // sums
  for (const DType dtype : {DType::bf16, DType::f32}) {
    most = std::max({most, float_split_encoder().max_encoded_size(dtype, elements),
                     factored_split_encoder().max_encoded_size(dtype, elements)});
  }
  return kSumsHeaderBytes + most;
}

Result<std::optional<CodedNumbers>> encode_numbers(GradientNumbers kind, ConstByteSpan numbers, const RowPlace& rows,
                                                   ByteSpan out, Scratch& scratch) {
  if (kind == GradientNumbers::sums) return encode_sums(numbers, rows, out, scratch);
  return encode_with_coder(dtype_of(kind), numbers, rows, out, scratch);
}

}  // namespace bitsnap::codec
