// Writes the end of each payload of gradient_step: spec.md, "Payload".
#pragma once

#include <cstddef>

#include "base/bytes.hpp"
#include "base/scratch.hpp"
#include "codec/encoder.hpp"

namespace bitsnap::codec {

// Writes F32 elements as exceptions from the expected ones behind the first `written` bytes of `out`, unless they are
// all as expected. Returns the size of the payload, or nullopt if it is not smaller than the elements.
[[nodiscard]] Result<PayloadSize> finish_with_exceptions(ConstByteSpan elements, ConstByteSpan expected, ByteSpan out,
                                                         std::size_t written, bool has_exceptions, Scratch& scratch);

}  // namespace bitsnap::codec
