// Reads the numbers of a gradient step: spec.md, "Numbers".
#pragma once

#include <cstddef>

#include "base/bytes.hpp"
#include "base/scratch.hpp"
#include "codec/decoder.hpp"
#include "codec/gradient_step/gradient_step.hpp"

namespace bitsnap::codec {

// Decodes `elements` numbers of dtype_of(kind), with the codec that the payload of the step names.
[[nodiscard]] Result<void> decode_numbers(GradientNumbers kind, const Decoder& coder, ConstByteSpan payload,
                                          std::size_t elements, ByteSpan out, Scratch& scratch);

}  // namespace bitsnap::codec
