// <bitsnap/codec.hpp>, the half that writes.
#include <bitsnap/codec.hpp>

#include <string>

#include <bitsnap/tensor.hpp>

#include "codec/chunk_arguments.hpp"
#include "codec/registry_encode.hpp"
#include "codec/thread_scratch.hpp"

namespace bitsnap {

Result<std::size_t> max_encoded_size(std::string_view codec, DType dtype, std::size_t elements) {
  BITSNAP_ASSIGN(const codec::Decoder* decoder, codec::named_decoder(codec));
  if (elements == 0 || elements > kChunkElements) {
    return fail(ErrorKind::invalid_argument, "codec " + std::string(codec) + ": a chunk has 1 to " +
                                                 std::to_string(kChunkElements) + " elements, not " +
                                                 std::to_string(elements));
  }
  return codec::find_encoder(decoder->id())->max_encoded_size(dtype, elements);
}

Result<std::size_t> encode_chunk(std::string_view codec, DType dtype, std::span<const std::byte> data,
                                 std::span<const std::byte> base, std::span<std::byte> out) {
  BITSNAP_ASSIGN(const codec::Decoder* decoder, codec::named_decoder(codec));
  const codec::BaseInput base_input(dtype, base);
  BITSNAP_ASSIGN(const std::size_t elements, codec::check_chunk(*decoder, dtype, data.size(), base_input));
  const codec::Encoder& encoder = *codec::find_encoder(decoder->id());
  if (const std::size_t needed = encoder.max_encoded_size(dtype, elements); out.size() < needed) {
    return fail(ErrorKind::invalid_argument, "codec " + std::string(codec) + ": needs room for " +
                                                 std::to_string(needed) + " bytes, was given " +
                                                 std::to_string(out.size()));
  }
  const codec::ChunkContext context{
      .dtype = dtype, .elements = elements, .inputs = base_input.inputs(), .parameters = {}};
  BITSNAP_ASSIGN(const std::optional<std::size_t> size, encoder.encode(data, context, out, codec::thread_scratch()));
  if (!size) {
    return fail(ErrorKind::invalid_argument, "codec " + std::string(codec) +
                                                 " cannot express this chunk in less than " +
                                                 std::to_string(data.size()) + " bytes");
  }
  return *size;
}

}  // namespace bitsnap
