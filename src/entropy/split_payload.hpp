// The fields of a payload of split elements, read and checked before anything is decoded: docs/spec/rans.md.
#pragma once

#include <array>
#include <cstddef>
#include <span>

#include "base/bytes.hpp"
#include "entropy/rans.hpp"
#include "entropy/rans_decode_kernel.hpp"
#include "entropy/split_elements.hpp"

namespace bitsnap::entropy {

// Each field lies within the payload. `states` are its last bytes; their upper bytes are not 0.
struct SplitPayload {
  ConstByteSpan rest;  // lower bytes of the elements
  std::array<ConstByteSpan, kRansGroups> streams;
  ConstByteSpan escapes;
  ConstByteSpan states;
};

// Reads the fields, and the table of each block in the form of the kernels; `tables` has one for each block of
// kRansBlockElements elements. Errors: truncated, corrupt.
[[nodiscard]] Result<SplitPayload> read_split_payload(ConstByteSpan payload, const SplitShape& shape,
                                                      std::span<RansDecodeTable> tables);

}  // namespace bitsnap::entropy
