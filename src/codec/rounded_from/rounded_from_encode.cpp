// Encodes rounded_from: weights from their masters, and masters from their weights. See spec.md.
#include <algorithm>
#include <cstring>

#include "base/cpu_dispatch.hpp"
#include "codec/builtin_codecs.hpp"
#include "codec/encoder.hpp"
#include "codec/rounded_from/rounded_from.hpp"
#include "codec/rounded_from/rounding_kernel.hpp"

namespace bitsnap::codec {
namespace {

class RoundedFromEncoder final : public Encoder {
 public:
  RoundedFromEncoder() noexcept : Encoder(rounded_from_decoder()) {}

  std::size_t max_encoded_size(DType dtype, std::size_t elements) const noexcept override {
    const std::size_t lows = dtype == DType::f32 ? 2 * elements : 0;
    return 1 + lows + ordinal_delta_encoder().max_encoded_size(dtype, elements);
  }

  Result<PayloadSize> encode(ConstByteSpan data, const EncodeContext& context, ByteSpan out,
                             Scratch& scratch) const override {
    std::uint8_t form = 0;
    std::size_t size = 1;
    ByteSpan lows;
    if (context.dtype == DType::f32) {
      lows = out.subspan(1, 2 * context.elements);
      kernels<RoundingKernels>().low_halves(reinterpret_cast<const std::uint8_t*>(data.data()), context.elements,
                                            reinterpret_cast<std::uint8_t*>(lows.data()));
      if (std::ranges::all_of(lows, [](std::byte byte) { return byte == std::byte{0}; })) {
        lows = {};
      } else {
        form |= kRoundedLowHalves;
        size += lows.size();
      }
    }
    const Scratch::Frame frame(scratch);
    BITSNAP_ASSIGN(const ByteSpan expected, scratch.take(data.size()));
    expect_elements(context, lows, expected);
    if (std::memcmp(expected.data(), data.data(), data.size()) != 0) {
      form |= kRoundedExceptions;
      const Input base{.kind = InputKind::base, .dtype = context.dtype, .bytes = expected};
      const EncodeContext beside{{context.dtype, context.elements, {&base, 1}}};
      BITSNAP_ASSIGN(const std::optional<std::size_t> exceptions,
                     ordinal_delta_encoder().encode(data, beside, out.subspan(size), scratch));
      if (!exceptions) return std::nullopt;
      size += *exceptions;
    }
    if (size >= data.size()) return std::nullopt;
    out[0] = static_cast<std::byte>(form);
    return size;
  }
};

}  // namespace

const Encoder& rounded_from_encoder() noexcept { return only<RoundedFromEncoder>(); }

}  // namespace bitsnap::codec
