// Checks the arguments of round_mantissa and selects the kernel.
#include "quantize/round_mantissa.hpp"

#include <cstring>

#include <fmt/format.h>

#include "base/cpu_dispatch.hpp"
#include "codec/rounded_from/rounded_from.hpp"
#include "quantize/quantize_blocks.hpp"
#include "quantize/round_mantissa_kernel.hpp"

namespace bitsnap::quantize {
namespace {

MantissaFormat format_of(DType dtype) noexcept {
  if (dtype == DType::bf16) return MantissaFormat::bf16;
  return dtype == DType::f16 ? MantissaFormat::f16 : MantissaFormat::f32;
}

// The weights that the codec rounded_from derives from these masters.
void round_to_weights(DType weights, const std::uint8_t* masters, std::size_t count, ByteSpan out) noexcept {
  const codec::Input peer{.kind = codec::InputKind::peer,
                          .dtype = DType::f32,
                          .bytes = {reinterpret_cast<const std::byte*>(masters), 4 * count}};
  codec::expect_elements({.dtype = weights, .elements = count, .inputs = {&peer, 1}}, {}, out);
}

// Masters whose rounding would change their weight become the other neighbour, or stay.
std::size_t keep_weights(DType weights, const Block& block, unsigned kept) noexcept {
  std::byte had[2 * kBlockElements];
  std::byte have[2 * kBlockElements];
  round_to_weights(weights, block.before, block.count, {had, 2 * block.count});
  round_to_weights(weights, block.elements, block.count, {have, 2 * block.count});
  if (std::memcmp(had, have, 2 * block.count) == 0) return 0;
  return kernels<RoundMantissaKernels>().keep_weights(block.before, reinterpret_cast<const std::uint8_t*>(had),
                                                      reinterpret_cast<const std::uint8_t*>(have), block.count, kept,
                                                      block.elements);
}

}  // namespace

unsigned RoundMantissa::mantissa_bits(DType dtype) noexcept {
  switch (dtype) {
    case DType::f32: return 23;
    case DType::bf16: return 7;
    case DType::f16: return 10;
    default: return 0;
  }
}

Result<RoundMantissa> RoundMantissa::of(DType dtype, unsigned kept) {
  const unsigned has = mantissa_bits(dtype);
  if (has == 0) {
    return fail(ErrorKind::invalid_argument,
                fmt::format("round_mantissa: expected F32, BF16 or F16, found {}", dtype_name(dtype)));
  }
  if (kept >= has) {
    return fail(ErrorKind::invalid_argument, fmt::format("round_mantissa: {} can keep 0 to {} mantissa bits, got {}",
                                                         dtype_name(dtype), has - 1, kept));
  }
  return RoundMantissa(dtype, kept, DType::opaque);
}

Result<RoundMantissa> RoundMantissa::of_master(DType weights, unsigned extra) {
  if (weights != DType::bf16 && weights != DType::f16) {
    return fail(
        ErrorKind::invalid_argument,
        fmt::format("round_mantissa: the weights of a master must be BF16 or F16, found {}", dtype_name(weights)));
  }
  const unsigned most = mantissa_bits(DType::f32) - mantissa_bits(weights) - 1;
  if (extra > most) {
    return fail(ErrorKind::invalid_argument,
                fmt::format("round_mantissa: a master of {} weights can keep 0 to {} extra bits, got {}",
                            dtype_name(weights), most, extra));
  }
  return RoundMantissa(DType::f32, mantissa_bits(weights) + extra, weights);
}

Result<void> RoundMantissa::quantize(DType dtype, ByteSpan elements, std::span<const Beside> beside,
                                     ErrorTally* tally) const {
  if (dtype != dtype_ || !beside.empty()) {
    return fail(ErrorKind::invalid_argument,
                fmt::format("round_mantissa: expected {} elements without other tensors, found {} with {} tensors",
                            dtype_name(dtype_), dtype_name(dtype), beside.size()));
  }
  BITSNAP_TRY(check_elements(name(), dtype, elements));
  const auto round = [this](const Block& block) {
    std::size_t past_nearest = kernels<RoundMantissaKernels>().round_mantissa(format_of(dtype_), block.before,
                                                                              block.count, kept_, block.elements);
    if (weights_ != DType::opaque) past_nearest += keep_weights(weights_, block, kept_);
    return past_nearest;
  };
  quantize_blocks(dtype, elements, round, tally);
  return {};
}

}  // namespace bitsnap::quantize
