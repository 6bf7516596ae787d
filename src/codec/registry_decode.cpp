// The table of decoders, in the order of ids.
#include "codec/builtin_codecs.hpp"
#include "codec/registry.hpp"

namespace bitsnap::codec {

std::span<const Decoder* const> all_decoders() noexcept {
  static const Decoder* const decoders[] = {
      &raw_decoder(),          &constant_decoder(),       &same_decoder(),
      &zstd_decoder(),         &byte_group_decoder(),     &float_split_decoder(),
      &bitmask_decoder(),      &ordinal_delta_decoder(),  &factored_split_decoder(),
      &rounded_from_decoder(), &optimizer_step_decoder(), &scaled_by_decoder(),
      &clustered_decoder(),    &gradient_step_decoder(),
  };
  return decoders;
}

const Decoder* find_decoder(std::uint16_t id) noexcept {
  for (const Decoder* decoder : all_decoders()) {
    if (static_cast<std::uint16_t>(decoder->id()) == id) return decoder;
  }
  return nullptr;
}

const Decoder* find_decoder(std::string_view name) noexcept {
  for (const Decoder* decoder : all_decoders()) {
    if (decoder->name() == name) return decoder;
  }
  return nullptr;
}

}  // namespace bitsnap::codec
