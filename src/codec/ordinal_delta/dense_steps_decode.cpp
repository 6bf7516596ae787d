// The dense form of ordinal_delta and that above a floor, reading: spec.md, "Dense". Part by part, so that contexts and
// values stay in the cache; far elements are put in their places behind each part.
#include "codec/ordinal_delta/dense_steps_decode.hpp"

#include <algorithm>
#include <cstring>

#include "base/cpu_dispatch.hpp"
#include "codec/ordinal_delta/ordinal_delta.hpp"
#include "codec/payload_checks.hpp"

namespace bitsnap::codec {
namespace {

// The elements of a chunk that moved more than a value can say, in order.
struct FarElements {
  ConstByteSpan elements;
  std::size_t used = 0;  // bytes; counts on where there are no more

  // Puts the next into the places of `count` elements whose value is kMostSteps.
  void put(const std::uint16_t* values, std::size_t count, std::byte* out) noexcept {
    // Nearly always there is none.
    std::uint16_t most = 0;
    for (std::size_t i = 0; i < count; ++i) most = std::max(most, values[i]);
    if (most != kMostSteps) return;
    for (std::size_t i = 0; i < count; ++i) {
      if (values[i] != kMostSteps) continue;
      if (used < elements.size()) {
        std::memcpy(out + i * sizeof(std::uint32_t), elements.data() + used, sizeof(std::uint32_t));
      }
      used += sizeof(std::uint32_t);
    }
  }
};

}  // namespace

Result<void> decode_dense_steps(ConstByteSpan payload, const SteppedElements& elements, Scratch& scratch) {
  const Scratch::Frame frame(scratch);
  const DType dtype = elements.floats.dtype;
  const std::size_t element_count = elements.count();
  StepGeometry geometry = geometry_of(elements.floats);
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

  BITSNAP_ASSIGN(const std::span<std::uint8_t> contexts, scratch.take_array<std::uint8_t>(kStepsPart));
  BITSNAP_ASSIGN(const std::span<std::uint16_t> values, scratch.take_array<std::uint16_t>(kStepsPart));
  ShortPart parts;
  BITSNAP_TRY(parts.open(elements, kStepsPart, scratch));
  const std::size_t base_bytes = element_size(dtype);
  const auto* const low_at = reinterpret_cast<const std::uint8_t*>(low.data());
  for (std::size_t first = 0; first < element_count; first += kStepsPart) {
    const std::size_t count = std::min(kStepsPart, element_count - first);
    const std::size_t steps = divide_up(count, entropy::kRansStepElements);
    entropy::ReadAhead ahead{.group_bytes = entropy::kRansLanes * base_bytes};
    if (first + count < element_count) ahead.streams[0] = elements.base.data() + (first + kStepsPart) * base_bytes;
    const ShortPart::Part part = parts.begin(first, count);
    const auto* const base = reinterpret_cast<const std::uint8_t*>(part.base);
    kernels<OrdinalStepKernels>().step_contexts(base, count, geometry, contexts.data());
    // Lanes of the last step that stand for nothing.
    std::memset(contexts.data() + count, 0, steps * entropy::kRansStepElements - count);
    lanes.decode(contexts.data(), steps, values.data(), ahead);
    kernels<OrdinalStepKernels>().move_steps(base, values.data(), low_at + first * low_bytes, count, geometry,
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
