// Reads the numbers of a gradient step: spec.md, "Numbers".
#include "codec/gradient_step/gradient_numbers_decode.hpp"

#include <algorithm>
#include <cstring>

#include "base/cpu_dispatch.hpp"
#include "base/try.hpp"
#include "codec/gradient_step/gradient_step_kernel.hpp"
#include "entropy/class_lanes.hpp"

namespace bitsnap::codec {
namespace {

// Numbers that are put together at once, so that contexts and lower halves stay in the cache.
constexpr std::size_t kPartRounds = 16;
constexpr std::size_t kPart = kPartRounds * entropy::kRansRoundElements;

Result<void> decode_sums(const Decoder& coder, ConstByteSpan payload, std::size_t elements, ByteSpan out,
                         Scratch& scratch) {
  const Scratch::Frame frame(scratch);
  ByteCursor cursor(payload);
  BITSNAP_ASSIGN(const auto upper_size, cursor.read<std::uint32_t>("gradient_step payload: size of the upper halves"));
  BITSNAP_ASSIGN(const auto top, cursor.read<std::uint8_t>("gradient_step payload: top exponent"));
  BITSNAP_ASSIGN(const ConstByteSpan coded, cursor.take(upper_size, "gradient_step payload: upper halves"));
  entropy::ClassLanesDecoder lanes;
  BITSNAP_TRY(lanes.open(payload.subspan(cursor.offset())));
  const ChunkContext of_halves{.dtype = DType::bf16, .elements = elements};
  BITSNAP_ASSIGN(const ByteSpan halves, scratch.take(of_halves.size_bytes()));
  BITSNAP_TRY(coder.decode(coded, of_halves, halves, scratch));
  BITSNAP_ASSIGN(const std::span<std::uint8_t> contexts, scratch.take_array<std::uint8_t>(kPart));
  BITSNAP_ASSIGN(const std::span<std::uint16_t> lower, scratch.take_array<std::uint16_t>(kPart));
  const auto& kernel = kernels<GradientStepKernels>();
  for (std::size_t first = 0; first < elements; first += kPart) {
    const std::size_t count = std::min(kPart, elements - first);
    const std::size_t rounds = divide_up(count, entropy::kRansRoundElements);
    const std::uint8_t* const upper = as_u8(halves) + first * sizeof(std::uint16_t);
    kernel.half_contexts(upper, count, top, contexts.data());
    std::memset(contexts.data() + count, 0, rounds * entropy::kRansRoundElements - count);
    lanes.decode(contexts.data(), rounds, lower.data(), {});
    kernel.join_halves(upper, lower.data(), count, reinterpret_cast<std::uint8_t*>(out.data()) + first * sizeof(float));
  }
  return lanes.check_end();
}

}  // namespace

Result<void> decode_numbers(GradientNumbers kind, const Decoder& coder, ConstByteSpan payload, std::size_t elements,
                            ByteSpan out, Scratch& scratch) {
  if (kind == GradientNumbers::sums) return decode_sums(coder, payload, elements, out, scratch);
  return coder.decode(payload, {.dtype = dtype_of(kind), .elements = elements}, out, scratch);
}

}  // namespace bitsnap::codec
