// Encodes second moments for gradient_step: spec.md, "Second moments".
#pragma once

#include <cstddef>
#include <optional>

#include "codec/encoder.hpp"

namespace bitsnap::codec {

// The same as the functions of Encoder, for chunks with the inputs of a second moment.
[[nodiscard]] std::size_t max_square_size(DType dtype, std::size_t elements) noexcept;
[[nodiscard]] Result<std::optional<Estimate>> analyze_square(ConstByteSpan data, const EncodeContext& context,
                                                             std::size_t elements, Scratch& scratch);
[[nodiscard]] Result<PayloadSize> encode_square(ConstByteSpan data, const EncodeContext& context, ByteSpan out,
                                                Scratch& scratch);

}  // namespace bitsnap::codec
