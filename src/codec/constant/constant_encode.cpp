// Encodes constant: one element, if all are equal. See spec.md.
#include <cstring>

#include "codec/builtin_codecs.hpp"
#include "codec/encoder.hpp"
#include "entropy/planes.hpp"

namespace bitsnap::codec {
namespace {

class ConstantEncoder final : public Encoder {
 public:
  ConstantEncoder() noexcept : Encoder(constant_decoder()) {}

  // The payload has a fixed size. Only encode() checks whether the whole chunk is constant.
  Result<std::optional<Estimate>> analyze(ConstByteSpan sample, const EncodeContext& sample_context, std::size_t,
                                          Scratch&) const override {
    const std::size_t element_bytes = element_size(sample_context.dtype);
    if (!entropy::all_equal_element(sample.data(), sample_context.elements, element_bytes)) return std::nullopt;
    return Estimate{.payload_bytes = element_bytes};
  }

  std::size_t max_encoded_size(DType dtype, std::size_t) const noexcept override { return element_size(dtype); }

  Result<PayloadSize> encode(ConstByteSpan data, const EncodeContext& context, ByteSpan out, Scratch&) const override {
    const std::size_t element_bytes = element_size(context.dtype);
    if (!entropy::all_equal_element(data.data(), context.elements, element_bytes)) return std::nullopt;
    std::memcpy(out.data(), data.data(), element_bytes);
    return element_bytes;
  }
};

}  // namespace

const Encoder& constant_encoder() noexcept { return only<ConstantEncoder>(); }

}  // namespace bitsnap::codec
