// Applies a quantizer block by block. Each block is copied first, so its errors are measured while it is in the cache.
// Allocates nothing; uses 20 KiB of stack.
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
  std::uint8_t* elements = nullptr;      // replaced by the callback; a copy of `before` at first
  std::size_t count = 0;                 // 1 to kBlockElements
  std::size_t first = 0;                 // index of the block's first element within the span
};

// Replaces the elements of a block; returns the number of elements that did not become the nearest number
// (ErrorTally::past_nearest). Must keep infinities and NaNs, and must not make finite elements infinite or NaN.
using QuantizeBlock = FunctionRef<std::size_t(const Block& block)>;

// For F32, BF16 and F16. `tally` may be nullptr. Runs in a FloatMode.
void quantize_blocks(DType dtype, ByteSpan elements, QuantizeBlock quantize, ErrorTally* tally) noexcept;

// Checks that the span holds whole elements; `who` is the quantizer's name.
[[nodiscard]] Result<void> check_elements(std::string_view who, DType dtype, ConstByteSpan elements);

}  // namespace bitsnap::quantize
