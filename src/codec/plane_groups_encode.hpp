// The writing side of plane_groups.hpp.
#pragma once

#include "codec/plane_groups.hpp"

namespace bitsnap::codec {

[[nodiscard]] std::size_t max_plane_groups_size(std::size_t elements, std::size_t element_bytes) noexcept;

// Writes the planes of `data` to `out`, which holds max_plane_groups_size() bytes; returns the size used.
[[nodiscard]] Result<std::size_t> encode_plane_groups(ConstByteSpan data, const PlaneGeometry& geometry, ByteSpan out,
                                                      Scratch& scratch);

// The size that encode_plane_groups() would return.
[[nodiscard]] Result<std::size_t> plane_groups_size(ConstByteSpan data, const PlaneGeometry& geometry,
                                                    Scratch& scratch);

}  // namespace bitsnap::codec
