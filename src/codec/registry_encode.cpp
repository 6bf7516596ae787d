// The table of encoders, in the order of ids.
#include "codec/registry_encode.hpp"
#include "codec/builtin_codecs.hpp"

namespace bitsnap::codec {

std::span<const Encoder* const> all_encoders() noexcept {
  static const Encoder* const encoders[] = {
      &raw_encoder(),          &constant_encoder(),       &same_encoder(),
      &zstd_encoder(),         &byte_group_encoder(),     &float_split_encoder(),
      &bitmask_encoder(),      &ordinal_delta_encoder(),  &factored_split_encoder(),
      &rounded_from_encoder(), &optimizer_step_encoder(), &scaled_by_encoder(),
      &clustered_encoder(),    &gradient_step_encoder(),
  };
  return encoders;
}

const Encoder* find_encoder(CodecId id) noexcept {
  for (const Encoder* encoder : all_encoders()) {
    if (encoder->decoder().id() == id) return encoder;
  }
  return nullptr;
}

const Encoder* find_encoder(std::string_view name) noexcept {
  for (const Encoder* encoder : all_encoders()) {
    if (encoder->decoder().name() == name) return encoder;
  }
  return nullptr;
}

}  // namespace bitsnap::codec
