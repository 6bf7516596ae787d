// Decodes plane groups: each group's planes are decoded into working memory and merged into the output.
#include "codec/plane_groups.hpp"

#include <string>

#include "base/try.hpp"
#include "codec/payload_checks.hpp"
#include "codec/seven_bits.hpp"

namespace bitsnap::codec {
namespace {

void merge_group(const PlanePointers& planes, const PlaneGeometry& geometry, std::size_t first, std::size_t count,
                 std::byte* out) noexcept {
  const std::size_t offset = first * geometry.element_bytes;
  switch (geometry.form) {
    case PlaneForm::plain: entropy::merge_planes(planes.data(), count, geometry.element_bytes, out + offset); return;
    case PlaneForm::rotated:
    case PlaneForm::unsigned_rotated:
      entropy::rotated_merge_planes(planes.data(), count, geometry.element_bytes, out + offset);
      return;
    case PlaneForm::xor_base:
      entropy::xor_merge_planes(planes.data(), geometry.base + offset, count, geometry.element_bytes, out + offset);
      return;
  }
}

// Decodes one plane of a group from the front of `payload`; returns the bytes used.
Result<std::size_t> decode_group_plane(ConstByteSpan payload, ByteSpan plane, bool packed, Scratch& scratch) {
  if (!packed) return entropy::decode_plane(payload, plane, scratch);
  const Scratch::Frame frame(scratch);
  BITSNAP_ASSIGN(const ByteSpan sevens, scratch.take(packed_bytes(plane.size())));
  BITSNAP_ASSIGN(const std::size_t used, entropy::decode_plane(payload, sevens, scratch));
  if (padding_is_set(sevens.data(), plane.size())) {
    return corrupt("bits after the last of {} elements are set", plane.size());
  }
  unpack_plane(sevens.data(), plane.size(), plane.data());
  return used;
}

}  // namespace

Result<void> decode_plane_groups(ConstByteSpan payload, const PlaneGeometry& geometry, ByteSpan out, Scratch& scratch) {
  const Scratch::Frame frame(scratch);
  const std::size_t group_elements = std::min(geometry.elements, entropy::kBlockBytes);
  BITSNAP_ASSIGN(const ByteSpan memory, scratch.take(group_elements * geometry.element_bytes));
  const PlanePointers planes = plane_pointers(memory.data(), geometry.element_bytes, group_elements);
  std::size_t offset = 0;
  for (std::size_t first = 0; first < geometry.elements; first += group_elements) {
    const std::size_t count = std::min(group_elements, geometry.elements - first);
    for (std::size_t k = 0; k < geometry.element_bytes; ++k) {
      const bool packed = k == 0 && geometry.form == PlaneForm::unsigned_rotated;
      auto used = decode_group_plane(payload.subspan(offset), ByteSpan(planes[k], count), packed, scratch);
      if (!used) {
        return tl::unexpected(std::move(used).error().within("byte plane " + std::to_string(k) + " from element " +
                                                             std::to_string(first) + ", payload offset " +
                                                             std::to_string(offset)));
      }
      offset += *used;
    }
    merge_group(planes, geometry, first, count, out.data());
  }
  if (offset != payload.size()) {
    return corrupt("byte planes end at offset {} of a payload of {} bytes", offset, payload.size());
  }
  return {};
}

}  // namespace bitsnap::codec
