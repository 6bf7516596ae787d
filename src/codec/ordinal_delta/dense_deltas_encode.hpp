// Writes the forms dense and above_floor of ordinal_delta: spec.md, "Dense" and "Above a floor".
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/bytes.hpp"
#include "base/scratch.hpp"
#include "codec/encoder.hpp"
#include "codec/ordinal_delta/measure_deltas_encode.hpp"
#include "codec/ordinal_delta/ordinal_delta.hpp"
#include "entropy/class_tables_encode.hpp"

namespace bitsnap::codec {

// The coding of a chunk, chosen from a sample.
struct DensePlan {
  DeltaGeometry geometry;  // with the chosen top, last_context, low_bytes and factor
  entropy::ClassTables tables;
  std::uint64_t payload_bytes = 0;  // estimated
};

// The bytes of a payload besides those of its elements.
[[nodiscard]] std::size_t dense_fixed_bytes(const DeltaGeometry& geometry, std::size_t classes) noexcept;

// The bytes before the low bytes.
[[nodiscard]] std::size_t dense_header_bytes(const DeltaGeometry& geometry) noexcept;

// Encodes the whole payload with its form byte. Returns nullopt if it would not be smaller than the elements. `out` has
// room for the chunk plus kFloorHeaderBytes.
[[nodiscard]] Result<PayloadSize> encode_dense_deltas(const DeltasToEncode& deltas, const DensePlan& plan, ByteSpan out,
                                                      Scratch& scratch);

}  // namespace bitsnap::codec
