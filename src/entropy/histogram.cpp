// Byte counts, and the quick test for incompressible blocks.
#include "entropy/histogram.hpp"

#include <cstring>

#include "base/spread_runs.hpp"

namespace bitsnap::entropy {
namespace {

// Equal bytes often follow each other; neighbours use different tables so they do not wait for each other's counter.
// 16-bit counters keep all tables in 4 KiB.
constexpr std::size_t kTables = 8;
using Tables = std::array<std::array<std::uint16_t, 256>, kTables>;
constexpr std::size_t kPartBytes = kTables * 0xffff;  // no counter overflows

void count_part(const std::byte* bytes, std::size_t size, Histogram& counts) noexcept {
  Tables tables{};
  std::size_t i = 0;
  for (; i + 8 <= size; i += 8) {
    std::uint64_t eight;
    std::memcpy(&eight, bytes + i, 8);
#pragma GCC unroll 8
    for (std::size_t k = 0; k < kTables; ++k) ++tables[k][(eight >> (8 * k)) & 255];
  }
  for (std::size_t k = 0; i < size; ++i, ++k) ++tables[k][std::to_integer<std::size_t>(bytes[i])];
  for (const auto& table : tables) {
    for (std::size_t value = 0; value < counts.size(); ++value) counts[value] += table[value];
  }
}

constexpr SpreadRuns kByteRuns{.count = 64, .elements = 32, .alignment = 32};
constexpr std::size_t kMinSampledBytes = 4 * kByteRuns.total();  // below this, counting everything is as cheap

}  // namespace

void count_bytes(const std::byte* bytes, std::size_t size, Histogram& counts) noexcept {
  counts.fill(0);
  for (std::size_t at = 0; at < size; at += kPartBytes) {
    count_part(bytes + at, size - at < kPartBytes ? size - at : kPartBytes, counts);
  }
}

bool looks_incompressible(const std::byte* bytes, std::size_t size) noexcept {
  if (size < kMinSampledBytes) return false;
  std::array<Histogram, 2> tables{};
  for (std::size_t run = 0; run < kByteRuns.count; ++run) {
    const std::byte* const at = bytes + kByteRuns.start(run, size);
    for (std::size_t i = 0; i < kByteRuns.elements; i += 2) {
      ++tables[0][std::to_integer<std::size_t>(at[i])];
      ++tables[1][std::to_integer<std::size_t>(at[i + 1])];
    }
  }
  for (std::size_t value = 0; value < 256; ++value) tables[0][value] += tables[1][value];
  return looks_flat(tables[0], kByteRuns.total());
}

bool looks_flat(const Histogram& counts, std::size_t sampled) noexcept {
  // The collision entropy never exceeds the order-0 entropy. If it is near 8 bits, so is the order-0 entropy, and for
  // small deviations its distance is half as large. N flat samples give N + N^2 / 256 on average, with a deviation of
  // 0.09 N. For 2,048 samples the bound corresponds to 7.85 bits, a saving of about 1 %; mantissas of normally
  // distributed weights have 7.94 bits.
  std::uint64_t squares = 0;
  for (const std::uint32_t count : counts) squares += std::uint64_t{count} * count;
  return squares <= sampled + sampled * sampled / 256 + sampled * 7 / 8;
}

}  // namespace bitsnap::entropy
