// Writes the sparse form of ordinal_delta: spec.md, "Sparse".
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/bytes.hpp"
#include "base/scratch.hpp"
#include "codec/encoder.hpp"
#include "codec/ordinal_delta/measure_deltas_encode.hpp"
#include "codec/ordinal_delta/sparse_deltas.hpp"
#include "entropy/class_lanes.hpp"

namespace bitsnap::codec {

// The sampled elements of each context, and the changed ones among them.
using ContextCounts = std::array<std::uint32_t, entropy::kClassContexts>;

struct SparsePlan {
  DeltaGeometry geometry;  // with the chosen top and last_context
  ContextCounts elements{};
  std::size_t sampled = 0;
  std::uint64_t payload_bytes = 0;  // estimated
};

// Plans the sparse form for `elements` elements from a sample whose geometry has no low bytes.
[[nodiscard]] SparsePlan plan_sparse(const DeltaSample& sample, std::size_t elements) noexcept;

// Encodes the whole payload with its form byte. Returns nullopt if it would not be smaller than the elements. `out` has
// room for the chunk plus kRiceWritableBehind.
[[nodiscard]] Result<PayloadSize> encode_sparse_deltas(const DeltasToEncode& chunk, const SparsePlan& plan,
                                                       ByteSpan out, Scratch& scratch);

}  // namespace bitsnap::codec
