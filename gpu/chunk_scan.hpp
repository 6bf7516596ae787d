// What has to be known of a chunk in the memory of a GPU before its tables are chosen on the CPU: some bits of all
// elements, and the elements that the CPU would sample.
#pragma once

#include <cstdint>

#include "gpu/lane_bits.hpp"
#include "gpu/lane_jobs.hpp"

namespace bitsnap::gpu {

// Of the elements of a block.
struct BlockBits {
  std::uint32_t any = 0;      // the bits that are set in an element
  std::uint32_t differs = 0;  // the bits in which an element differs from the first one
};

template <unsigned kBytes, typename Warp>
[[nodiscard]] BITSNAP_DEVICE BlockBits scan_block(const Warp& warp, const std::uint8_t* elements, std::uint64_t count) {
  const std::uint32_t first = load_element<kBytes>(elements);
  typename Warp::template PerLane<std::uint32_t> any;
  typename Warp::template PerLane<std::uint32_t> differs;
  warp.each([&](unsigned lane, unsigned slot) {
    std::uint32_t own = 0;
    std::uint32_t difference = 0;
    for (std::uint64_t i = lane; i < count; i += kLanes) {
      const std::uint32_t element = load_element<kBytes>(elements + i * kBytes);
      own |= element;
      difference |= element ^ first;
    }
    any[slot] = own;
    differs[slot] = difference;
  });
  return {warp.any_of(any), warp.any_of(differs)};
}

// Copies runs of `run_elements` elements, whose first elements have the numbers `starts`, one after another.
template <unsigned kBytes, typename Warp>
BITSNAP_DEVICE void gather_runs(const Warp& warp, const std::uint8_t* elements, const std::uint32_t* starts,
                                std::uint32_t runs, std::uint32_t run_elements, std::uint8_t* to) {
  warp.each([&](unsigned lane, unsigned) {
    for (std::uint32_t i = lane; i < runs * run_elements; i += kLanes) {
      const std::uint64_t from = std::uint64_t{starts[i / run_elements]} + i % run_elements;
      store_element<kBytes>(to + std::uint64_t{i} * kBytes, load_element<kBytes>(elements + from * kBytes));
    }
  });
}

}  // namespace bitsnap::gpu
