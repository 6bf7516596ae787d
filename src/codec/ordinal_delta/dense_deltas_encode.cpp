// Writes the forms dense and above_floor of ordinal_delta: spec.md, "Dense". Works from the last part to the first; low
// bytes go directly to their place in the payload.
#include "codec/ordinal_delta/dense_deltas_encode.hpp"

#include <algorithm>
#include <cstring>

#include "base/cpu_dispatch.hpp"
#include "codec/ordinal_delta/measure_deltas_encode.hpp"
#include "entropy/class_lanes_encode.hpp"

namespace bitsnap::codec {
namespace {

// The elements of a chunk whose measure is too large for a value, found from the last to the first.
class FarElements {
 public:
  explicit FarElements(std::span<std::byte> room) noexcept : room_(room), at_(room.size()) {}

  // Keeps those whose value is kMostDeltas.
  void keep(const std::byte* elements, const std::uint16_t* values, std::size_t count) noexcept {
    // Nearly all parts have none.
    std::uint16_t most = 0;
    for (std::size_t i = 0; i < count; ++i) most = std::max(most, values[i]);
    if (most != kMostDeltas) return;
    for (std::size_t i = count; i-- > 0;) {
      if (values[i] != kMostDeltas) continue;
      at_ -= sizeof(std::uint32_t);
      std::memcpy(room_.data() + at_, elements + i * sizeof(std::uint32_t), sizeof(std::uint32_t));
    }
  }

  [[nodiscard]] ConstByteSpan bytes() const noexcept { return room_.subspan(at_); }

 private:
  std::span<std::byte> room_;
  std::size_t at_;
};

void write_header(const DeltaGeometry& geometry, std::size_t far_count, std::byte* out) noexcept {
  const bool has_floor = geometry.factor != 0;
  *out++ = static_cast<std::byte>(has_floor ? OrdinalDeltaForm::above_floor : OrdinalDeltaForm::dense);
  *out++ = static_cast<std::byte>(geometry.top);
  if (!has_floor) *out++ = static_cast<std::byte>(geometry.first_direct);
  *out++ = static_cast<std::byte>(geometry.low_bytes);
  store_le(out, static_cast<std::uint32_t>(far_count));
  if (has_floor) store_le(out + sizeof(std::uint32_t), geometry.factor);
}

}  // namespace

std::size_t dense_header_bytes(const DeltaGeometry& geometry) noexcept {
  return geometry.factor != 0 ? kFloorHeaderBytes : kDenseHeaderBytes;
}

std::size_t dense_fixed_bytes(const DeltaGeometry& geometry, std::size_t classes) noexcept {
  return dense_header_bytes(geometry) + entropy::class_tables_size(classes) +
         (entropy::kRansGroups + 3) * sizeof(std::uint32_t) + entropy::kRansStateBytes;
}

Result<PayloadSize> encode_dense_deltas(const DeltasToEncode& deltas, const DensePlan& plan, ByteSpan out,
                                        Scratch& scratch) {
  const Scratch::Frame frame(scratch);
  const std::size_t element_bytes = plan.geometry.element_bytes;
  const std::size_t low_bytes = plan.geometry.low_bytes;
  const std::size_t header_bytes = dense_header_bytes(plan.geometry);
  const std::size_t elements = deltas.count();
  BITSNAP_ASSIGN(const std::span<std::uint8_t> contexts, scratch.take_array<std::uint8_t>(kDeltasPart));
  BITSNAP_ASSIGN(const std::span<std::uint16_t> values, scratch.take_array<std::uint16_t>(kDeltasPart));
  const bool can_be_far = element_bytes > 2;
  BITSNAP_ASSIGN(const std::span<std::byte> far_room, scratch.take(can_be_far ? deltas.data.size() : 0));
  FarElements far(far_room);
  PartToEncode own;
  BITSNAP_TRY(own.open(deltas, kDeltasPart, scratch));
  entropy::ClassLanesEncoder lanes;
  BITSNAP_TRY(lanes.open(plan.tables, divide_up(elements, entropy::kRansRoundElements), scratch));

  auto* const low = reinterpret_cast<std::uint8_t*>(out.data()) + header_bytes;
  for (std::size_t part = divide_up(elements, kDeltasPart); part-- > 0;) {
    const std::size_t first = part * kDeltasPart;
    const std::size_t count = std::min(kDeltasPart, elements - first);
    const std::size_t part_rounds = divide_up(count, entropy::kRansRoundElements);
    const std::size_t whole_bytes = element_size(deltas.floats.dtype);
    entropy::ReadAhead ahead{.group_bytes = entropy::kRansLanes * whole_bytes};
    if (part > 0) {
      ahead.streams[0] = deltas.data.data() + (first - kDeltasPart) * whole_bytes;
      ahead.streams[1] = deltas.base.data() + (first - kDeltasPart) * whole_bytes;
    }
    if (!own.take(first, count)) return std::nullopt;
    measure_deltas(own.data, own.base, plan.geometry, contexts.data(), values.data(), low + first * low_bytes);
    if (can_be_far) far.keep(own.data.data(), values.data(), count);
    for (std::size_t i = count; i < part_rounds * entropy::kRansRoundElements; ++i) {
      contexts[i] = 0;
      values[i] = lanes.cheapest_value(0);
    }
    lanes.encode(contexts.data(), values.data(), part_rounds, ahead);
  }
  const std::size_t before = header_bytes + low_bytes * elements;
  const std::size_t size = before + far.bytes().size() + lanes.finish();
  if (size >= deltas.data.size()) return std::nullopt;
  write_header(plan.geometry, far.bytes().size() / element_bytes, out.data());
  std::ranges::copy(far.bytes(), out.data() + before);
  lanes.write(out.data() + before + far.bytes().size());
  return size;
}

}  // namespace bitsnap::codec
