// Encodes averages of weights for gradient_step: spec.md, "Averages".
#pragma once

#include <cstddef>
#include <optional>

#include "codec/encoder.hpp"

namespace bitsnap::codec {

// The same as the functions of Encoder, for chunks with the inputs of an average.
[[nodiscard]] std::size_t max_average_size(DType dtype, std::size_t elements) noexcept;
[[nodiscard]] Result<std::optional<Estimate>> analyze_average(ConstByteSpan data, const EncodeContext& context,
                                                              std::size_t elements, Scratch& scratch);
[[nodiscard]] Result<PayloadSize> encode_average(ConstByteSpan data, const EncodeContext& context, ByteSpan out,
                                                 Scratch& scratch);

}  // namespace bitsnap::codec
