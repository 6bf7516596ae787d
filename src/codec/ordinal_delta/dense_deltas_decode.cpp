// Reads the forms dense and above_floor of ordinal_delta: spec.md, "Dense". Works part by part so that contexts and
// values stay in the cache, and inserts far elements after each part.
#include "codec/ordinal_delta/dense_deltas_decode.hpp"

#include <algorithm>
#include <cstring>

#include "base/cpu_dispatch.hpp"
#include "codec/ordinal_delta/ordinal_delta.hpp"
#include "codec/payload_checks.hpp"

namespace bitsnap::codec {
namespace {

// The elements of a chunk whose measure is too large for a value, in order.
struct FarElements {
  ConstByteSpan elements;
  std::size_t used = 0;  // bytes; also counts missing ones

  // Inserts the next far elements where the values are kMostDeltas.
  void put(const std::uint16_t* values, std::size_t count, std::byte* out) noexcept {
    // Nearly all parts have none.
    std::uint16_t most = 0;
    for (std::size_t i = 0; i < count; ++i) most = std::max(most, values[i]);
    if (most != kMostDeltas) return;
    for (std::size_t i = 0; i < count; ++i) {
      if (values[i] != kMostDeltas) continue;
      if (used < elements.size()) {
        std::memcpy(out + i * sizeof(std::uint32_t), elements.data() + used, sizeof(std::uint32_t));
      }
      used += sizeof(std::uint32_t);
    }
  }
};

}  // namespace

Result<void> decode_dense_deltas(ConstByteSpan payload, const MovedElements& elements, Scratch& scratch) {
  const Scratch::Frame frame(scratch);
  const DType dtype = elements.floats.dtype;
  const std::size_t element_count = elements.count();
  DeltaGeometry geometry = geometry_of(elements.floats);
  const bool has_floor = payload[0] == static_cast<std::byte>(OrdinalDeltaForm::above_floor);
  ByteCursor cursor(payload.subspan(1));
  BITSNAP_ASSIGN(geometry.top, cursor.read<std::uint8_t>("top exponent"));
  if (!has_floor) {
    BITSNAP_ASSIGN(geometry.first_direct, cursor.read<std::uint8_t>("first direct context"));
  }
  if (geometry.first_direct > entropy::kClassContexts) {
    return corrupt("first direct context is {}, expected at most {}", geometry.first_direct, entropy::kClassContexts);
  }
  BITSNAP_ASSIGN(const std::uint8_t low_bytes, cursor.read<std::uint8_t>("number of low bytes of an element"));
  const unsigned most_low = geometry.element_bytes > 2 ? 2 : 0;
  if (low_bytes > most_low) {
    return corrupt("elements have {} low bytes, expected at most {} for {}", low_bytes, most_low, dtype_name(dtype));
  }
  geometry.low_bytes = low_bytes;
  BITSNAP_ASSIGN(const std::uint32_t far_count, cursor.read<std::uint32_t>("number of far elements"));
  const bool can_be_far = geometry.element_bytes > 2;
  if (far_count > 0 && !can_be_far) {
    return corrupt("{} far elements, expected none for {}", far_count, dtype_name(dtype));
  }
  if (has_floor) {
    BITSNAP_ASSIGN(geometry.factor, cursor.read<std::uint32_t>("factor of the floors"));
    if (!is_floor_factor(geometry.factor)) {
      return corrupt("factor of the floors has the bits {}, expected a positive normal number", geometry.factor);
    }
  }
  BITSNAP_ASSIGN(const ConstByteSpan low, cursor.take(element_count * low_bytes, "low bytes of the elements"));
  FarElements far;
  BITSNAP_ASSIGN(far.elements, cursor.take(std::uint64_t{far_count} * geometry.element_bytes, "far elements"));
  entropy::ClassLanesDecoder lanes;
  BITSNAP_TRY(lanes.open(payload.subspan(1 + cursor.offset())));

  BITSNAP_ASSIGN(const std::span<std::uint8_t> contexts, scratch.take_array<std::uint8_t>(kDeltasPart));
  BITSNAP_ASSIGN(const std::span<std::uint16_t> values, scratch.take_array<std::uint16_t>(kDeltasPart));
  ShortPart parts;
  BITSNAP_TRY(parts.open(elements, kDeltasPart, scratch));
  const std::size_t base_bytes = element_size(dtype);
  const auto* const low_at = reinterpret_cast<const std::uint8_t*>(low.data());
  for (std::size_t first = 0; first < element_count; first += kDeltasPart) {
    const std::size_t count = std::min(kDeltasPart, element_count - first);
    const std::size_t rounds = divide_up(count, entropy::kRansRoundElements);
    entropy::ReadAhead ahead{.group_bytes = entropy::kRansLanes * base_bytes};
    if (first + count < element_count) ahead.streams[0] = elements.base.data() + (first + kDeltasPart) * base_bytes;
    const ShortPart::Part part = parts.begin(first, count);
    const auto* const base = reinterpret_cast<const std::uint8_t*>(part.base);
    kernels<OrdinalDeltaKernels>().delta_contexts(base, count, geometry, contexts.data());
    // The unused lanes of the last round.
    std::memset(contexts.data() + count, 0, rounds * entropy::kRansRoundElements - count);
    lanes.decode(contexts.data(), rounds, values.data(), ahead);
    kernels<OrdinalDeltaKernels>().move_deltas(base, values.data(), low_at + first * low_bytes, count, geometry,
                                               reinterpret_cast<std::uint8_t*>(part.out));
    if (can_be_far) far.put(values.data(), count, part.out);
    parts.finish();
  }
  if (far.used != far.elements.size()) {
    return corrupt("{} far elements in the values, expected {}", far.used / geometry.element_bytes, far_count);
  }
  return lanes.check_end();
}

}  // namespace bitsnap::codec
