// Takes samples of chunks, and looks at the bytes of a few elements.
#include "plan/chunk_sample.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/try.hpp"
#include "entropy/histogram.hpp"

namespace bitsnap::plan {
namespace {

std::size_t first_of_run(std::size_t run, std::size_t elements) noexcept {
  return (elements - kRunElements) * run / (kSampleRuns - 1);
}

Result<ConstByteSpan> gather_runs(ConstByteSpan bytes, DType dtype, Scratch& scratch) {
  if (bytes.empty()) return bytes;
  const std::size_t element_bytes = element_size(dtype);
  const std::size_t run_bytes = kRunElements * element_bytes;
  BITSNAP_ASSIGN(const ByteSpan sample, scratch.take(kSampleRuns * run_bytes));
  for (std::size_t run = 0; run < kSampleRuns; ++run) {
    const std::size_t first = first_of_run(run, bytes.size() / element_bytes);
    std::memcpy(sample.data() + run * run_bytes, bytes.data() + first * element_bytes, run_bytes);
  }
  return sample;
}

// How often byte number `byte` of the examined elements has each value; of their XOR with the base unless that is
// empty.
entropy::Histogram count_bytes(ConstByteSpan data, ConstByteSpan base, std::size_t element_bytes,
                               std::size_t byte) noexcept {
  constexpr std::size_t kPerRun = kExaminedElements / kSampleRuns;
  const std::size_t stride = kRunElements / kPerRun * element_bytes;
  entropy::Histogram counts{};
  for (std::size_t run = 0; run < kSampleRuns; ++run) {
    std::size_t at = first_of_run(run, data.size() / element_bytes) * element_bytes + byte;
    for (std::size_t i = 0; i < kPerRun; ++i, at += stride) {
      const std::byte value = base.empty() ? data[at] : data[at] ^ base[at];
      ++counts[std::to_integer<std::size_t>(value)];
    }
  }
  return counts;
}

// Bytes of a float below its exponent; 0: not a float that codecs split.
std::size_t mantissa_bytes(DType dtype) noexcept {
  switch (dtype) {
    case DType::bf16:
    case DType::f16: return 1;
    case DType::f32: return 2;
    default: return 0;
  }
}

}  // namespace

Result<ChunkSample> take_sample(ConstByteSpan data, DType dtype, const Surroundings& around, Scratch& scratch) {
  ChunkSample sample{.data = {}, .around = around, .step = {around.step.begin(), around.step.end()}};
  BITSNAP_ASSIGN(sample.data, gather_runs(data, dtype, scratch));
  const auto shrink = [&scratch](codec::Input& input) -> Result<void> {
    BITSNAP_ASSIGN(input.bytes, gather_runs(input.bytes, input.dtype, scratch));
    return {};
  };
  BITSNAP_TRY(shrink(sample.around.base));
  BITSNAP_TRY(shrink(sample.around.peer));
  for (codec::Input& input : sample.step) BITSNAP_TRY(shrink(input));
  sample.around.step = sample.step;
  sample.around.rows = {};
  return sample;
}

std::uint32_t count_same_bytes(DType dtype, ConstByteSpan data, ConstByteSpan base) noexcept {
  if (base.empty()) return 0;
  const std::size_t element_bytes = element_size(dtype);
  std::uint32_t same = 0;
  for (std::size_t byte = 0; byte < element_bytes; ++byte) same += count_bytes(data, base, element_bytes, byte)[0];
  return same;
}

bool has_random_mantissas(DType dtype, ConstByteSpan data, ConstByteSpan base) noexcept {
  const std::size_t element_bytes = element_size(dtype);
  const std::size_t lower_bytes = mantissa_bytes(dtype);
  if (lower_bytes == 0) return false;
  for (std::size_t byte = 0; byte < lower_bytes; ++byte) {
    if (!entropy::looks_flat(count_bytes(data, {}, element_bytes, byte), kExaminedElements)) return false;
  }
  if (base.empty()) return true;
  // A change by one ULP already flips 1 to 8 of the lowest bits: many patterns. Few patterns are set or cleared bits.
  constexpr std::ptrdiff_t kFewPatterns = 4;
  const entropy::Histogram changes = count_bytes(data, base, element_bytes, 0);
  return changes[0] == kExaminedElements || 256 - std::ranges::count(changes, 0U) > kFewPatterns;
}

}  // namespace bitsnap::plan
