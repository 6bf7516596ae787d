// Encodes shortened elements for float_split: spec.md, "Shortened elements".
#pragma once

#include <cstddef>

#include "base/bytes.hpp"
#include "base/scratch.hpp"
#include "codec/encoder.hpp"
#include "codec/short_elements.hpp"

namespace bitsnap::codec {

// The size of `out` that encode_short_floats() needs.
[[nodiscard]] std::size_t max_short_floats_size(DType dtype, std::size_t elements) noexcept;

// Encodes the whole payload. Returns nullopt if this form does not suit the elements: the remaining mantissa looks
// compressible, the exponents do not suit lanes, there are too many exceptions, or the payload would not be smaller.
// Precondition: floats.zero_bits is not 0.
[[nodiscard]] Result<PayloadSize> encode_short_floats(ConstByteSpan data, const ShortFloats& floats, bool has_signs,
                                                      ByteSpan out, Scratch& scratch);

// The likely result of encode_short_floats() for a chunk of `elements` elements, from a sample.
[[nodiscard]] Result<PayloadSize> estimate_short_floats(ConstByteSpan sample, const ShortFloats& floats, bool has_signs,
                                                        std::size_t elements, Scratch& scratch);

}  // namespace bitsnap::codec
