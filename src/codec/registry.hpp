// All decoders, by id and by name. A codec is registered in registry_decode.cpp and in registry_encode.cpp.
#pragma once

#include <span>
#include <string_view>

#include "codec/decoder.hpp"

namespace bitsnap::codec {

// In the order of ids.
[[nodiscard]] std::span<const Decoder* const> all_decoders() noexcept;

// nullptr if there is none.
[[nodiscard]] const Decoder* find_decoder(std::uint16_t id) noexcept;
[[nodiscard]] const Decoder* find_decoder(std::string_view name) noexcept;

}  // namespace bitsnap::codec
