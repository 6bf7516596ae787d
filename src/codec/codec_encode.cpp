// The writing functions of <bitsnap/codec.hpp>.
#include <bitsnap/codec.hpp>

#include <fmt/format.h>

#include <bitsnap/tensor.hpp>

#include "codec/chunk_arguments.hpp"
#include "codec/registry_encode.hpp"
#include "codec/thread_scratch.hpp"

namespace bitsnap {

Result<std::size_t> max_encoded_size(std::string_view codec, DType dtype, std::size_t elements) {
  BITSNAP_ASSIGN(const codec::Decoder* decoder, codec::named_decoder(codec));
  if (elements == 0 || elements > kChunkElements) {
    return fail(ErrorKind::invalid_argument,
                fmt::format("codec {}: a chunk must have 1 to {} elements, got {}", codec, kChunkElements, elements));
  }
  return codec::find_encoder(decoder->id())->max_encoded_size(dtype, elements);
}

Result<std::optional<std::size_t>> encode_chunk(std::string_view codec, DType dtype, std::span<const std::byte> data,
                                                std::span<const std::byte> base, std::span<std::byte> out) {
  BITSNAP_ASSIGN(const codec::Decoder* decoder, codec::named_decoder(codec));
  const codec::BaseInput base_input(dtype, base);
  BITSNAP_ASSIGN(const std::size_t elements, codec::check_chunk(*decoder, dtype, data.size(), base_input));
  const codec::Encoder& encoder = *codec::find_encoder(decoder->id());
  if (const std::size_t needed = encoder.max_encoded_size(dtype, elements); out.size() < needed) {
    return fail(ErrorKind::invalid_argument,
                fmt::format("codec {}: needs room for {} bytes, got {}", codec, needed, out.size()));
  }
  const codec::EncodeContext context{{.dtype = dtype, .elements = elements, .inputs = base_input.inputs()}};
  return encoder.encode(data, context, out, codec::thread_scratch());
}

}  // namespace bitsnap
