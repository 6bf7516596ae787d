// The places of the runs of a sample: one run in each of `runs` segments of equal size, at a different place in each.
// If every run began where its segment begins, a sample of a matrix whose rows are as long as a segment would see the
// same columns in every row. Places depend on the arguments alone.
#pragma once

#include <cstddef>
#include <cstdint>

namespace bitsnap {

// The first element of run number `run`; its distance from the start of the segment is a multiple of `alignment`.
// Preconditions: run < runs; runs * run_elements <= elements < 2^32; alignment > 0.
[[nodiscard]] constexpr std::size_t spread_run_start(std::size_t run, std::size_t runs, std::size_t run_elements,
                                                     std::size_t elements, std::size_t alignment) noexcept {
  const std::size_t segment = elements / runs;
  const std::uint64_t places = (segment - run_elements) / alignment + 1;
  // Multiples of the golden ratio modulo 1 spread evenly for any number of runs.
  constexpr std::uint32_t kGoldenRatio = 0x9E3779B9;
  const std::uint64_t share = static_cast<std::uint32_t>(run) * kGoldenRatio;
  return run * segment + static_cast<std::size_t>(share * places >> 32) * alignment;
}

}  // namespace bitsnap
