// The reading functions of <bitsnap/codec.hpp>.
#include <bitsnap/codec.hpp>

#include <fmt/format.h>

#include <bitsnap/tensor.hpp>

#include "codec/chunk_arguments.hpp"
#include "codec/registry.hpp"
#include "codec/thread_scratch.hpp"

namespace bitsnap {
namespace codec {

Result<const Decoder*> named_decoder(std::string_view codec) {
  const Decoder* decoder = find_decoder(codec);
  if (decoder == nullptr) return fail(ErrorKind::invalid_argument, fmt::format("unknown codec '{}'", codec));
  return decoder;
}

Result<std::size_t> check_chunk(const Decoder& decoder, DType dtype, std::size_t chunk_bytes, const BaseInput& base) {
  const std::string_view name = decoder.name();
  const std::size_t elements = chunk_bytes / element_size(dtype);
  if (elements == 0 || elements > kChunkElements || chunk_bytes % element_size(dtype) != 0) {
    return fail(ErrorKind::invalid_argument, fmt::format("codec {}: a chunk of {} bytes is not 1 to {} elements of {}",
                                                         name, chunk_bytes, kChunkElements, dtype_name(dtype)));
  }
  for (const Input& input : base.inputs()) {
    if (input.bytes.size() != chunk_bytes) {
      return fail(ErrorKind::invalid_argument, fmt::format("codec {}: a base of {} bytes for a chunk of {} bytes", name,
                                                           input.bytes.size(), chunk_bytes));
    }
  }
  if (!decoder.accepts(dtype, base.inputs())) {
    return fail(ErrorKind::invalid_argument, fmt::format("codec {} does not take {} {} a base", name, dtype_name(dtype),
                                                         base.inputs().empty() ? "without" : "with"));
  }
  return elements;
}

}  // namespace codec

std::vector<CodecInfo> list_codecs() {
  std::vector<CodecInfo> list;
  for (const codec::Decoder* decoder : codec::all_decoders()) {
    list.push_back({static_cast<std::uint16_t>(decoder->id()), decoder->name(), decoder->summary()});
  }
  return list;
}

bool codec_accepts(std::string_view codec, DType dtype, bool with_base) noexcept {
  const codec::Decoder* decoder = codec::find_decoder(codec);
  if (decoder == nullptr) return false;
  const codec::Input base{.kind = codec::InputKind::base, .dtype = dtype, .bytes = {}};
  return decoder->accepts(dtype, {&base, with_base ? 1U : 0U});
}

Result<void> decode_chunk(std::string_view codec, DType dtype, std::span<const std::byte> payload,
                          std::span<const std::byte> base, std::span<std::byte> out) {
  BITSNAP_ASSIGN(const codec::Decoder* decoder, codec::named_decoder(codec));
  const codec::BaseInput base_input(dtype, base);
  BITSNAP_ASSIGN(const std::size_t elements, codec::check_chunk(*decoder, dtype, out.size(), base_input));
  const codec::ChunkContext context{.dtype = dtype, .elements = elements, .inputs = base_input.inputs()};
  return decoder->decode(payload, context, out, codec::thread_scratch());
}

}  // namespace bitsnap
