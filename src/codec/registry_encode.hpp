// All encoders, in the order of ids. Writing side only.
#pragma once

#include <span>
#include <string_view>

#include "codec/encoder.hpp"

namespace bitsnap::codec {

[[nodiscard]] std::span<const Encoder* const> all_encoders() noexcept;

// nullptr if there is none.
[[nodiscard]] const Encoder* find_encoder(CodecId id) noexcept;
[[nodiscard]] const Encoder* find_encoder(std::string_view name) noexcept;

}  // namespace bitsnap::codec
