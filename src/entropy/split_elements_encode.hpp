// Writes floats whose topmost byte is coded in lanes: docs/spec/rans.md. split_elements.hpp is the reading side.
#pragma once

#include <cstddef>
#include <optional>

#include "entropy/split_elements.hpp"

namespace bitsnap::entropy {

// The size of `out` that encode_split() needs.
[[nodiscard]] std::size_t max_split_size(const SplitShape& shape) noexcept;

// Encodes elements * element_bytes bytes and returns the payload's size. Returns nullopt if this form does not suit the
// elements: the lower bytes look compressible; a sample predicts a payload that exceeds the entropy of exponents and
// signs by 1 / 128 of the elements; there is only one symbol; or the payload would not be smaller than the elements.
// Elements without signs must not be rotated. The spans must not overlap.
[[nodiscard]] Result<std::optional<std::size_t>> encode_split(ConstByteSpan data, const SplitShape& shape, ByteSpan out,
                                                              Scratch& scratch);

// The likely result of encode_split(), from the same samples.
[[nodiscard]] Result<std::optional<std::size_t>> estimate_split(ConstByteSpan data, const SplitShape& shape,
                                                                Scratch& scratch);

}  // namespace bitsnap::entropy
