// How quantizers go through elements: block by block, each copied first, so that what became of it can be measured
// while it is still in the cache. Nothing is allocated; 20 KiB of the stack are used.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include <bitsnap/dtype.hpp>
#include <bitsnap/error_tally.hpp>

#include "base/bytes.hpp"
#include "base/function_ref.hpp"
#include "base/try.hpp"

namespace bitsnap::quantize {

inline constexpr std::size_t kBlockElements = 1024;

struct Block {
  const std::uint8_t* before = nullptr;  // a copy of the elements
  std::uint8_t* elements = nullptr;      // to be replaced; for now they are as before
  std::size_t count = 0;                 // 1 to kBlockElements
  std::size_t first = 0;                 // number of the first one within the span
};

// Replaces the elements of a block; returns how many of them are not at what was nearest (ErrorTally::past_nearest).
// What is infinite or NaN it leaves as it is, and nothing finite becomes so.
using QuantizeBlock = FunctionRef<std::size_t(const Block& block)>;

// For F32, BF16 and F16. `tally` may be nullptr. All is computed as a FloatMode says.
void quantize_blocks(DType dtype, ByteSpan elements, QuantizeBlock quantize, ErrorTally* tally) noexcept;

// Whether these are whole elements; `who` is the quantizer.
[[nodiscard]] Result<void> check_elements(std::string_view who, DType dtype, ConstByteSpan elements);

}  // namespace bitsnap::quantize
