// Quantizes block by block, and tallies each chunk.
#include "quantize/quantize_blocks.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include <fmt/format.h>

#include <bitsnap/tensor.hpp>

#include "base/cpu_dispatch.hpp"
#include "base/float_mode.hpp"
#include "quantize/error_kernel.hpp"

namespace bitsnap::quantize {
namespace {

static_assert(kBlockElements % kLanes == 0 && kChunkElements % kBlockElements == 0);

void add_errors(DType dtype, const Block& block, ErrorLanes& lanes) noexcept {
  if (dtype == DType::f32) return kernels<ErrorKernels>().add_errors(block.before, block.elements, block.count, lanes);
  std::uint8_t before[4 * kBlockElements];
  std::uint8_t after[4 * kBlockElements];
  kernels<ErrorKernels>().widen(dtype == DType::bf16, block.before, block.count, before);
  kernels<ErrorKernels>().widen(dtype == DType::bf16, block.elements, block.count, after);
  kernels<ErrorKernels>().add_errors(before, after, block.count, lanes);
}

// Merges the tally of a whole part into that of the parts before it: its lanes, in order.
void merge_part(const ErrorLanes& lanes, std::uint64_t elements, std::uint64_t past_nearest,
                ErrorTally& tally) noexcept {
  ErrorTally part{.elements = elements,
                  .changed = lanes.changed,
                  .finite = lanes.finite,
                  .nonzero = lanes.nonzero,
                  .past_nearest = past_nearest};
  double max_square = 0;
  for (std::size_t lane = 0; lane < kLanes; ++lane) {
    max_square = std::max(max_square, lanes.max_square[lane]);
    part.max_relative = std::max(part.max_relative, lanes.max_relative[lane]);
    part.sum_square += lanes.sum_square[lane];
    part.sum_relative += lanes.sum_relative[lane];
  }
  part.max_absolute = std::sqrt(max_square);  // the square root of a square is exact
  tally.merge(part);
}

}  // namespace

void quantize_blocks(DType dtype, ByteSpan elements, QuantizeBlock quantize, ErrorTally* tally) noexcept {
  const FloatMode mode;
  const std::size_t width = element_size(dtype);
  const std::size_t total = elements.size() / width;
  std::uint8_t before[4 * kBlockElements];
  for (std::size_t chunk = 0; chunk < total; chunk += kChunkElements) {
    const std::size_t chunk_end = std::min<std::size_t>(total, chunk + kChunkElements);
    ErrorLanes lanes;
    std::uint64_t past_nearest = 0;
    for (std::size_t first = chunk; first < chunk_end; first += kBlockElements) {
      const Block block{.before = before,
                        .elements = reinterpret_cast<std::uint8_t*>(elements.data()) + width * first,
                        .count = std::min(kBlockElements, chunk_end - first),
                        .first = first};
      std::memcpy(before, block.elements, width * block.count);
      past_nearest += quantize(block);
      if (tally != nullptr) add_errors(dtype, block, lanes);
    }
    if (tally != nullptr) merge_part(lanes, chunk_end - chunk, past_nearest, *tally);
  }
}

Result<void> check_elements(std::string_view who, DType dtype, ConstByteSpan elements) {
  const std::size_t width = element_size(dtype);
  if (elements.size() % width == 0) return {};
  return fail(ErrorKind::invalid_argument, fmt::format("{}: expected whole {} elements of {} bytes, found {} bytes",
                                                       who, dtype_name(dtype), width, elements.size()));
}

}  // namespace bitsnap::quantize
