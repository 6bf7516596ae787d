// A sample of runs of elements: one run in each of `count` segments of equal size, at a different place in each. If
// every run began where its segment begins, a sample of a matrix whose rows are as long as a segment would see the same
// columns in every row. Places depend on the numbers alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace bitsnap {

struct SpreadRuns {
  std::size_t count;
  std::size_t elements;       // of each run
  std::size_t alignment = 1;  // of the distance of a run from the start of its segment, in elements

  [[nodiscard]] constexpr std::size_t total() const noexcept { return count * elements; }

  // The first element of run number `run` in `size` elements.
  // Preconditions: run < count; total() <= size < 2^32; alignment > 0.
  [[nodiscard]] constexpr std::size_t start(std::size_t run, std::size_t size) const noexcept {
    const std::size_t segment = size / count;
    const std::uint64_t places = (segment - elements) / alignment + 1;
    // Multiples of the golden ratio modulo 1 spread evenly for any number of runs.
    constexpr std::uint32_t kGoldenRatio = 0x9E3779B9;
    const std::uint64_t share = static_cast<std::uint32_t>(run) * kGoldenRatio;
    return run * segment + static_cast<std::size_t>(share * places >> 32) * alignment;
  }

  // Copies the runs of `size` elements one after another, or all elements if there are no more than total(); returns
  // the number of copied elements.
  std::size_t gather(const std::byte* from, std::size_t size, std::size_t element_bytes, std::byte* to) const noexcept {
    if (size <= total()) {
      std::memcpy(to, from, size * element_bytes);
      return size;
    }
    for (std::size_t run = 0; run < count; ++run) {
      std::memcpy(to + run * elements * element_bytes, from + start(run, size) * element_bytes,
                  elements * element_bytes);
    }
    return total();
  }
};

}  // namespace bitsnap
