// Floats whose topmost byte is coded in lanes, writing: docs/spec/rans.md. split_elements.hpp is the other side.
#pragma once

#include <cstddef>
#include <optional>

#include "entropy/split_elements.hpp"

namespace bitsnap::entropy {

// Bytes of `out` that encode_split() needs.
[[nodiscard]] std::size_t max_split_size(const SplitShape& shape) noexcept;

// Encodes elements * element_bytes bytes and returns the payload's size; nullopt where this form is not for them: a
// sample says that the lower bytes could be coded too, or that the payload would be larger by 1 / 128 of the elements
// than exponents and signs require; there is only one symbol; or the payload would not be smaller than the elements.
// Elements without any sign are not to be rotated. The spans must not overlap.
[[nodiscard]] Result<std::optional<std::size_t>> encode_split(ConstByteSpan data, const SplitShape& shape, ByteSpan out,
                                                              Scratch& scratch);

// What encode_split() is likely to return, by the samples that it goes by.
[[nodiscard]] Result<std::optional<std::size_t>> estimate_split(ConstByteSpan data, const SplitShape& shape,
                                                                Scratch& scratch);

}  // namespace bitsnap::entropy
