// Payloads of float_split whose elements are shortened, writing: spec.md, "Shortened elements".
#pragma once

#include <cstddef>
#include <optional>

#include "base/bytes.hpp"
#include "base/scratch.hpp"
#include "codec/short_elements.hpp"

namespace bitsnap::codec {

// Bytes of `out` that encode_short_floats() needs for so many elements.
[[nodiscard]] std::size_t max_short_floats_size(DType dtype, std::size_t elements) noexcept;

// The whole payload; nullopt where it is not for these elements: a sample says that what is left of the mantissas could
// be coded, too, or exponents do not suit lanes; there are too many exceptions; or the payload would not be smaller.
// Precondition: floats.zero_bits is not 0.
[[nodiscard]] Result<std::optional<std::size_t>> encode_short_floats(ConstByteSpan data, const ShortFloats& floats,
                                                                     bool has_signs, ByteSpan out, Scratch& scratch);

// What encode_short_floats() is likely to return for a chunk of `elements` elements of which `sample` are some.
[[nodiscard]] Result<std::optional<std::size_t>> estimate_short_floats(ConstByteSpan sample, const ShortFloats& floats,
                                                                       bool has_signs, std::size_t elements,
                                                                       Scratch& scratch);

}  // namespace bitsnap::codec
