// Encodes plane groups: each group is split into planes in working memory, which are then coded one by one.
#include "codec/plane_groups_encode.hpp"

#include "base/try.hpp"
#include "codec/seven_bits.hpp"
#include "entropy/byte_block_encode.hpp"

namespace bitsnap::codec {
namespace {

void split_group(const std::byte* data, const PlaneGeometry& geometry, std::size_t first, std::size_t count,
                 const PlanePointers& planes) noexcept {
  const std::size_t offset = first * geometry.element_bytes;
  switch (geometry.form) {
    case PlaneForm::plain: entropy::split_planes(data + offset, count, geometry.element_bytes, planes.data()); return;
    case PlaneForm::rotated:
    case PlaneForm::unsigned_rotated:
      entropy::rotated_split_planes(data + offset, count, geometry.element_bytes, planes.data());
      return;
    case PlaneForm::xor_base:
      entropy::xor_split_planes(data + offset, geometry.base + offset, count, geometry.element_bytes, planes.data());
      return;
  }
}

// Calls `take_plane` with each plane of each group, and sums the results.
template <typename TakePlane>
Result<std::size_t> over_planes(ConstByteSpan data, const PlaneGeometry& geometry, Scratch& scratch,
                                TakePlane&& take_plane) {
  const Scratch::Frame frame(scratch);
  const std::size_t group_elements = std::min(geometry.elements, entropy::kBlockBytes);
  BITSNAP_ASSIGN(const ByteSpan memory, scratch.take(group_elements * geometry.element_bytes));
  const PlanePointers planes = plane_pointers(memory.data(), geometry.element_bytes, group_elements);
  const bool packs = geometry.form == PlaneForm::unsigned_rotated;
  BITSNAP_ASSIGN(const ByteSpan sevens, scratch.take(packs ? packed_bytes(group_elements) : 0));
  std::size_t total = 0;
  for (std::size_t first = 0; first < geometry.elements; first += group_elements) {
    const std::size_t count = std::min(group_elements, geometry.elements - first);
    split_group(data.data(), geometry, first, count, planes);
    for (std::size_t k = 0; k < geometry.element_bytes; ++k) {
      ConstByteSpan plane(planes[k], count);
      if (packs && k == 0) {
        pack_plane(plane.data(), count, sevens.data());
        plane = sevens.first(packed_bytes(count));
      }
      BITSNAP_ASSIGN(const std::size_t size, take_plane(plane, total));
      total += size;
    }
  }
  return total;
}

}  // namespace

std::size_t max_plane_groups_size(std::size_t elements, std::size_t element_bytes) noexcept {
  return entropy::max_encoded_plane_size(elements) * element_bytes;
}

Result<std::size_t> encode_plane_groups(ConstByteSpan data, const PlaneGeometry& geometry, ByteSpan out,
                                        Scratch& scratch) {
  return over_planes(data, geometry, scratch, [&](ConstByteSpan plane, std::size_t offset) {
    return entropy::encode_plane(plane, out.subspan(offset), scratch);
  });
}

Result<std::size_t> plane_groups_size(ConstByteSpan data, const PlaneGeometry& geometry, Scratch& scratch) {
  return over_planes(data, geometry, scratch,
                     [&](ConstByteSpan plane, std::size_t) { return entropy::encoded_plane_size(plane, scratch); });
}

}  // namespace bitsnap::codec
