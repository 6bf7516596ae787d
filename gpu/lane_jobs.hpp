// What the kernels for split elements (docs/spec/rans.md) are told about a chunk. All pointers are into memory that the
// kernels reach: that of the GPU, or plain memory where they are emulated.
#pragma once

#include <cstddef>
#include <cstdint>

#include "entropy/rans_decode_kernel.hpp"
#include "entropy/rans_encode_kernel.hpp"

#ifdef __CUDACC__
#define BITSNAP_DEVICE __host__ __device__
#else
#define BITSNAP_DEVICE
#endif

namespace bitsnap::gpu {

// Those of entropy/rans.hpp, which includes headers that code for a GPU cannot have.
inline constexpr unsigned kLanes = 64;  // of a group
inline constexpr unsigned kGroups = 4;
inline constexpr unsigned kRoundElements = kLanes * kGroups;
inline constexpr std::uint64_t kBlockElements = 65536;
inline constexpr std::uint32_t kFirstState = 256;
inline constexpr std::uint64_t kStateBytes = 2 * kRoundElements;
inline constexpr std::uint64_t kSizesBytes = 4 * (kGroups + 1);

[[nodiscard]] BITSNAP_DEVICE constexpr std::uint64_t rounds_of(std::uint64_t elements) noexcept {
  return (elements + kRoundElements - 1) / kRoundElements;
}

// One mask of lanes for each group of each round: which of its elements are escaped.
[[nodiscard]] BITSNAP_DEVICE constexpr std::uint64_t mask_bytes(std::uint64_t elements) noexcept {
  return rounds_of(elements) * kGroups * sizeof(std::uint64_t);
}

struct BlockEncodeTable {
  entropy::RansEncodeTable table;
  std::uint8_t filler;  // the symbol of unused lanes
};

struct EncodeJob {
  const std::uint8_t* elements = nullptr;
  std::uint64_t count = 0;                    // of elements
  const BlockEncodeTable* blocks = nullptr;   // one for each kBlockElements elements
  const std::uint8_t* table_bytes = nullptr;  // the tables as they are stored
  std::uint64_t table_size = 0;               // in bytes
  std::uint8_t* scratch = nullptr;            // encode_scratch_bytes(), a multiple of eight from an aligned address
  std::uint8_t* payload = nullptr;            // room for as many bytes as the elements have
  std::uint64_t* payload_size = nullptr;      // the result; 0: the payload would not be smaller than the elements
  std::uint8_t form = 0;                      // the first byte of the payload
};

// Streams that are written downwards, each in its own room, and the masks of escapes before them.
[[nodiscard]] BITSNAP_DEVICE constexpr std::uint64_t encode_scratch_bytes(std::uint64_t elements) noexcept {
  return mask_bytes(elements) + rounds_of(elements) * kRoundElements;
}

struct DecodeJob {
  const std::uint8_t* rest = nullptr;
  const std::uint8_t* streams[kGroups] = {};
  std::uint64_t stream_sizes[kGroups] = {};
  const std::uint8_t* escapes = nullptr;
  std::uint64_t escapes_size = 0;
  const std::uint8_t* states = nullptr;
  const entropy::RansDecodeTable* blocks = nullptr;
  std::uint64_t* masks = nullptr;  // mask_bytes()
  std::uint8_t* elements = nullptr;
  std::uint64_t count = 0;
  std::uint32_t* is_valid = nullptr;  // the result: 1, or 0 for a damaged payload, whose elements are unspecified
};

}  // namespace bitsnap::gpu
