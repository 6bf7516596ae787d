// The dense form of ordinal_delta and that above a floor, writing: spec.md, "Dense" and "Above a floor".
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/bytes.hpp"
#include "base/scratch.hpp"
#include "codec/ordinal_delta/measure_steps_encode.hpp"
#include "codec/ordinal_delta/ordinal_delta.hpp"
#include "entropy/class_tables_encode.hpp"

namespace bitsnap::codec {

// How a chunk is going to be coded, from a sample of it.
struct DensePlan {
  StepGeometry geometry;  // with top, last_context, low_bytes and factor as chosen
  entropy::ClassTables tables;
  std::uint64_t payload_bytes = 0;  // estimated
};

// Bytes that the payload of a chunk has besides its elements' own.
[[nodiscard]] std::size_t dense_fixed_bytes(const StepGeometry& geometry, std::size_t classes) noexcept;

// What of that stands before the low bytes.
[[nodiscard]] std::size_t dense_header_bytes(const StepGeometry& geometry) noexcept;

// The whole payload, form byte included; nullopt where it would not be smaller than the elements. `out` has room for
// the chunk and kFloorHeaderBytes more.
[[nodiscard]] Result<std::optional<std::size_t>> encode_dense_steps(const StepsToEncode& steps, const DensePlan& plan,
                                                                    ByteSpan out, Scratch& scratch);

}  // namespace bitsnap::codec
