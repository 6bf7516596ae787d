// Blocks, and the tally of each chunk.
#include "quantize/quantize_blocks.hpp"

#include <algorithm>
#include <cstring>
#include <string>

#include <bitsnap/tensor.hpp>

#include "base/cpu_dispatch.hpp"
#include "base/float_mode.hpp"
#include "quantize/error_kernel.hpp"

namespace bitsnap::quantize {
namespace {

constexpr KernelTable<void(const std::uint8_t*, const std::uint8_t*, std::size_t, ErrorLanes&) noexcept> kAddErrors{
    add_errors_scalar, BITSNAP_X86(add_errors_avx2, add_errors_avx512)};
constexpr KernelTable<void(bool, const std::uint8_t*, std::size_t, std::uint8_t*) noexcept> kWiden{
    widen_scalar, BITSNAP_X86(widen_avx2, widen_avx512)};

static_assert(kBlockElements % kLanes == 0 && kChunkElements % kBlockElements == 0);

void add_errors(DType dtype, const Block& block, ErrorLanes& lanes) noexcept {
  if (dtype == DType::f32) return kAddErrors.pick()(block.before, block.elements, block.count, lanes);
  std::uint8_t before[4 * kBlockElements];
  std::uint8_t after[4 * kBlockElements];
  kWiden.pick()(dtype == DType::bf16, block.before, block.count, before);
  kWiden.pick()(dtype == DType::bf16, block.elements, block.count, after);
  kAddErrors.pick()(before, after, block.count, lanes);
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
  return fail(ErrorKind::invalid_argument, std::string(who) + ": elements of " + std::string(dtype_name(dtype)) +
                                               " have " + std::to_string(width) + " bytes, found " +
                                               std::to_string(elements.size()) + " bytes in all");
}

}  // namespace bitsnap::quantize
