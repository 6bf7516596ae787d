#include "entropy/element_sample_encode.hpp"

#include <bit>
#include <cstring>

namespace bitsnap::entropy {
namespace {

// Neighbours use different tables: equal neighbours would wait for each other's counter.
constexpr std::size_t kTables = 4;
using Tables = std::array<std::array<std::uint16_t, 256>, kTables>;

// Calls `body(first, elements)` for each sampled run; returns the number of elements.
template <typename Body>
inline std::size_t for_runs(const SplitShape& shape, Body&& body) noexcept {
  if (shape.elements <= kSymbolRuns.total()) {
    body(std::size_t{0}, shape.elements);
    return shape.elements;
  }
  for (std::size_t run = 0; run < kSymbolRuns.count; ++run) {
    body(kSymbolRuns.start(run, shape.elements), kSymbolRuns.elements);
  }
  return kSymbolRuns.total();
}

template <typename Element>
void count(const std::byte* data, const SplitShape& shape, Histogram& counts) noexcept {
  constexpr std::size_t kBytes = sizeof(Element);
  Tables tables{};
  // A word of eight bytes at a time if the run is long enough.
  constexpr std::size_t kPerWord = 8 / kBytes;
  const unsigned below = static_cast<unsigned>(8 * (kBytes - 1)) - (shape.rotated ? 1U : 0U);  // bits below a symbol
  const auto count_run = [&](const std::byte* at, std::size_t elements) {
    const std::byte* const end = at + elements * kBytes;
    for (; end - at >= 8; at += 8) {
      const std::uint64_t word = load_le<std::uint64_t>(at) >> below;
#pragma GCC unroll 8
      for (std::size_t k = 0; k < kPerWord; ++k) ++tables[k % kTables][word >> (8 * kBytes * k) & 255];
    }
    for (; at != end; at += kBytes) ++tables[0][load_le<Element>(at) >> below & 255];
  };
  for_runs(shape, [&](std::size_t first, std::size_t elements) { count_run(data + first * kBytes, elements); });
  for (std::size_t value = 0; value < counts.size(); ++value) {
    counts[value] = std::uint32_t{tables[0][value]} + tables[1][value] + tables[2][value] + tables[3][value];
  }
}

template <typename Element>
bool rest_random(const std::byte* data, const SplitShape& shape) noexcept {
  constexpr std::size_t kBytes = sizeof(Element);
  std::array<Histogram, kBytes - 1> counts{};
  const std::size_t sampled = for_runs(shape, [&](std::size_t first, std::size_t elements) {
    for (std::size_t i = first; i < first + elements; ++i) {
      auto element = load_le<Element>(data + i * kBytes);
      if (shape.rotated) element = std::rotl(element, 1);
      for (std::size_t k = 0; k + 1 < kBytes; ++k) ++counts[k][static_cast<std::size_t>(element >> (8 * k) & 255)];
    }
  });
  for (const Histogram& one : counts) {
    if (!looks_flat(one, sampled)) return false;
  }
  return true;
}

}  // namespace

void count_symbols(const std::byte* data, const SplitShape& shape, Histogram& counts) noexcept {
  switch (shape.element_bytes) {
    case 1: return count<std::uint8_t>(data, shape, counts);
    case 2: return count<std::uint16_t>(data, shape, counts);
    default: return count<std::uint32_t>(data, shape, counts);
  }
}

bool has_one_symbol(const std::byte* data, const SplitShape& shape) noexcept {
  // The bits of the symbol in all elements of a word.
  constexpr std::uint64_t kAll = 0xFFFFFFFFFFFFFFFF;
  const std::uint64_t top = shape.element_bytes == 1   ? kAll
                            : shape.element_bytes == 2 ? 0xFF00FF00FF00FF00
                                                       : 0xFF000000FF000000;
  const std::uint64_t bits = shape.rotated ? top >> 1 : top;
  const std::size_t size = shape.elements * shape.element_bytes;
  std::uint64_t first = 0;
  for (std::size_t i = 0; i < 8; i += shape.element_bytes) {
    std::memcpy(reinterpret_cast<std::byte*>(&first) + i, data, shape.element_bytes);
  }
  constexpr std::size_t kPart = 4096;
  std::size_t at = 0;
  while (at + 8 <= size) {
    std::uint64_t differ = 0;
    const std::size_t end = size - at < kPart ? size - 7 : at + kPart;
    for (; at < end; at += 8) differ |= (load_le<std::uint64_t>(data + at) ^ first) & bits;
    if (differ != 0) return false;
  }
  std::uint64_t last = first;
  std::memcpy(&last, data + at, size - at);
  return ((last ^ first) & bits) == 0;
}

bool rest_looks_random(const std::byte* data, const SplitShape& shape) noexcept {
  switch (shape.element_bytes) {
    case 1: return true;
    case 2: return rest_random<std::uint16_t>(data, shape);
    default: return rest_random<std::uint32_t>(data, shape);
  }
}

}  // namespace bitsnap::entropy
