// The codecs of this layer; each is defined in the folder of its name. Only the registries and the encoders include
// this; other code uses registry.hpp or registry_encode.hpp. All codecs are immutable and live as long as the process.
#pragma once

namespace bitsnap::codec {

class Decoder;
class Encoder;

[[nodiscard]] const Decoder& raw_decoder() noexcept;
[[nodiscard]] const Decoder& constant_decoder() noexcept;
[[nodiscard]] const Decoder& same_decoder() noexcept;
[[nodiscard]] const Decoder& zstd_decoder() noexcept;
[[nodiscard]] const Decoder& byte_group_decoder() noexcept;
[[nodiscard]] const Decoder& float_split_decoder() noexcept;
[[nodiscard]] const Decoder& bitmask_decoder() noexcept;
[[nodiscard]] const Decoder& ordinal_delta_decoder() noexcept;
[[nodiscard]] const Decoder& factored_split_decoder() noexcept;
[[nodiscard]] const Decoder& rounded_from_decoder() noexcept;
[[nodiscard]] const Decoder& optimizer_step_decoder() noexcept;
[[nodiscard]] const Decoder& scaled_by_decoder() noexcept;
[[nodiscard]] const Decoder& clustered_decoder() noexcept;
[[nodiscard]] const Decoder& gradient_step_decoder() noexcept;

[[nodiscard]] const Encoder& raw_encoder() noexcept;
[[nodiscard]] const Encoder& constant_encoder() noexcept;
[[nodiscard]] const Encoder& same_encoder() noexcept;
[[nodiscard]] const Encoder& zstd_encoder() noexcept;
[[nodiscard]] const Encoder& byte_group_encoder() noexcept;
[[nodiscard]] const Encoder& float_split_encoder() noexcept;
[[nodiscard]] const Encoder& bitmask_encoder() noexcept;
[[nodiscard]] const Encoder& ordinal_delta_encoder() noexcept;
[[nodiscard]] const Encoder& factored_split_encoder() noexcept;
[[nodiscard]] const Encoder& rounded_from_encoder() noexcept;
[[nodiscard]] const Encoder& optimizer_step_encoder() noexcept;
[[nodiscard]] const Encoder& scaled_by_encoder() noexcept;
[[nodiscard]] const Encoder& clustered_encoder() noexcept;
[[nodiscard]] const Encoder& gradient_step_encoder() noexcept;

}  // namespace bitsnap::codec
