// The sparse form of ordinal_delta, writing: spec.md, "Sparse".
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/bytes.hpp"
#include "base/scratch.hpp"
#include "codec/ordinal_delta/measure_steps_encode.hpp"
#include "codec/ordinal_delta/sparse_steps.hpp"
#include "entropy/class_lanes.hpp"

namespace bitsnap::codec {

// How many elements of each context a sample has, and how many of them changed.
using ContextCounts = std::array<std::uint32_t, entropy::kClassContexts>;

struct SparsePlan {
  StepGeometry geometry;  // with top and last_context as chosen
  ContextCounts elements{};
  std::size_t sampled = 0;
  std::uint64_t payload_bytes = 0;  // estimated
};

// Plans the sparse form for `elements` elements from a sample of them, whose geometry has no low bytes.
[[nodiscard]] SparsePlan plan_sparse(const StepSample& sample, std::size_t elements) noexcept;

// The whole payload, form byte included; nullopt where it would not be smaller than the elements. `out` has room for
// the chunk and kRiceWritableBehind more.
[[nodiscard]] Result<std::optional<std::size_t>> encode_sparse_steps(const StepsToEncode& chunk, const SparsePlan& plan,
                                                                     ByteSpan out, Scratch& scratch);

}  // namespace bitsnap::codec
