// The default estimate: encodes the sample and scales its size to the chunk.
#include "base/checked.hpp"
#include "codec/encoder.hpp"

namespace bitsnap::codec {

Result<std::optional<Estimate>> Encoder::analyze(ConstByteSpan sample, const EncodeContext& sample_context,
                                                 std::size_t elements, Scratch& scratch) const {
  const Scratch::Frame frame(scratch);
  BITSNAP_ASSIGN(const ByteSpan out, scratch.take(max_encoded_size(sample_context.dtype, sample_context.elements)));
  BITSNAP_ASSIGN(const std::optional<std::size_t> size, encode(sample, sample_context, out, scratch));
  if (!size) return std::nullopt;
  const std::uint64_t scaled = divide_up<std::uint64_t>(std::uint64_t{*size} * elements, sample_context.elements);
  return Estimate{.payload_bytes = scaled};
}

}  // namespace bitsnap::codec
