// Loops that compilers vectorize at each CPU level.
#include "codec/ordinal_delta/ordinal_deltas_kernel.hpp"

#include "codec/ordinal_delta/element_floors.hpp"
#include "codec/ordinal_delta/ordinal_arithmetic.hpp"

namespace bitsnap::codec {
namespace {

// Direct measures: which contexts have them, and how they are computed.
template <typename Element>
struct Direct {
  explicit Direct(const DeltaGeometry& geometry) noexcept
      : limit(limit_of(geometry)),
        most(static_cast<Element>(((std::uint64_t{geometry.top} + 1) << (geometry.mantissa_bits + 1)) - 1)),
        mantissa_bits(geometry.mantissa_bits),
        exponent_mask(geometry.exponent_mask) {}

  [[nodiscard]] bool applies(Element base) const noexcept {
    return static_cast<int>(base >> mantissa_bits & exponent_mask) <= limit;
  }
  // The sign is the lowest bit, below the distance of the magnitude from the number after the top exponent.
  [[nodiscard]] Element measure(Element element) const noexcept {
    return static_cast<Element>(most -
                                static_cast<Element>(static_cast<Element>(element << 1) | (sign_of(element) & 1)));
  }
  [[nodiscard]] Element element_of(Element measure) const noexcept {
    const auto turned = static_cast<Element>(most - measure);
    constexpr int kTop = 8 * static_cast<int>(sizeof(Element)) - 1;
    return static_cast<Element>(turned >> 1 | static_cast<Element>(turned << kTop));
  }

  // The largest exponent with a direct measure; context 0 includes all exponents above the top.
  static int limit_of(const DeltaGeometry& geometry) noexcept {
    if (geometry.first_direct >= kNoDirect) return -1;
    return geometry.first_direct == 0 ? 255 : geometry.top - geometry.first_direct;
  }

  int limit;
  Element most;
  unsigned mantissa_bits;
  unsigned exponent_mask;
};

enum class Measure : std::uint8_t { deltas, deltas_or_direct, above_floor };

template <typename Element, std::size_t kLow, Measure kMeasure>
inline void measure_loop(const std::uint8_t* data, const std::uint8_t* base, std::size_t elements,
                         const DeltaGeometry& geometry, std::uint16_t* values, std::uint8_t* low) noexcept {
  [[maybe_unused]] const Direct<Element> direct(geometry);
  [[maybe_unused]] const Floors floors(geometry.factor);
  for (std::size_t i = 0; i < elements; ++i) {
    const auto element = load_at<Element>(data, i);
    const auto from = load_at<Element>(base, i);
    Element own;
    if constexpr (kMeasure == Measure::above_floor) {
      own = static_cast<Element>(element - floors.of(from));
    } else {
      own = zigzag_of(element, from);
      if constexpr (kMeasure == Measure::deltas_or_direct) own = direct.applies(from) ? direct.measure(element) : own;
    }
    std::uint32_t measure = own;
    if constexpr (kLow == 1) low[i] = static_cast<std::uint8_t>(measure);
    if constexpr (kLow == 2) {
      store_at(low, i, static_cast<std::uint16_t>(measure));
    }
    measure >>= 8 * kLow;
    if constexpr (sizeof(Element) > 2) measure = measure < kMostDeltas ? measure : kMostDeltas;
    values[i] = static_cast<std::uint16_t>(measure);
  }
  static_cast<void>(low);
}

template <typename Element, std::size_t kLow, Measure kMeasure>
inline void move_loop(const std::uint8_t* base, const std::uint16_t* values, const std::uint8_t* low,
                      std::size_t elements, const DeltaGeometry& geometry, std::uint8_t* out) noexcept {
  [[maybe_unused]] const Direct<Element> direct(geometry);
  [[maybe_unused]] const Floors floors(geometry.factor);
  for (std::size_t i = 0; i < elements; ++i) {
    std::uint32_t measure = std::uint32_t{values[i]} << (8 * kLow);
    if constexpr (kLow == 1) measure |= low[i];
    if constexpr (kLow == 2) measure |= load_at<std::uint16_t>(low, i);
    const auto from = load_at<Element>(base, i);
    Element element;
    if constexpr (kMeasure == Measure::above_floor) {
      element = static_cast<Element>(floors.of(from) + measure);
    } else {
      element = moved(from, static_cast<Element>(measure));
      if constexpr (kMeasure == Measure::deltas_or_direct) {
        element = direct.applies(from) ? direct.element_of(static_cast<Element>(measure)) : element;
      }
    }
    store_at(out, i, element);
  }
  static_cast<void>(low);
}

// Calls body<Element, low bytes, measure>().
template <typename Body>
inline void by_geometry(const DeltaGeometry& geometry, Body&& body) noexcept {
  const auto by_measure = [&]<typename Element, std::size_t kLow>() {
    if constexpr (sizeof(Element) == 4) {
      if (geometry.factor != 0) return body.template operator()<Element, kLow, Measure::above_floor>();
    }
    return geometry.first_direct < kNoDirect ? body.template operator()<Element, kLow, Measure::deltas_or_direct>()
                                             : body.template operator()<Element, kLow, Measure::deltas>();
  };
  switch (geometry.element_bytes) {
    case 1: return by_measure.template operator()<std::uint8_t, 0>();
    case 2: return by_measure.template operator()<std::uint16_t, 0>();
    default: break;
  }
  switch (geometry.low_bytes) {
    case 0: return by_measure.template operator()<std::uint32_t, 0>();
    case 1: return by_measure.template operator()<std::uint32_t, 1>();
    default: return by_measure.template operator()<std::uint32_t, 2>();
  }
}

void delta_contexts(const std::uint8_t* base, std::size_t elements, const DeltaGeometry& geometry,
                    std::uint8_t* contexts) noexcept {
  switch (geometry.element_bytes) {
    case 1: return contexts_loop<std::uint8_t>(base, elements, geometry, contexts);
    case 2: return contexts_loop<std::uint16_t>(base, elements, geometry, contexts);
    default: return contexts_loop<std::uint32_t>(base, elements, geometry, contexts);
  }
}

void measure_deltas(const std::uint8_t* data, const std::uint8_t* base, std::size_t elements,
                    const DeltaGeometry& geometry, std::uint16_t* values, std::uint8_t* low) noexcept {
  by_geometry(geometry, [&]<typename Element, std::size_t kLow, Measure kMeasure>() {
    measure_loop<Element, kLow, kMeasure>(data, base, elements, geometry, values, low);
  });
}

void move_deltas(const std::uint8_t* base, const std::uint16_t* values, const std::uint8_t* low, std::size_t elements,
                 const DeltaGeometry& geometry, std::uint8_t* out) noexcept {
  by_geometry(geometry, [&]<typename Element, std::size_t kLow, Measure kMeasure>() {
    move_loop<Element, kLow, kMeasure>(base, values, low, elements, geometry, out);
  });
}

}  // namespace

constinit const OrdinalDeltaKernels OrdinalDeltaKernels::BITSNAP_KERNEL_LEVEL = {
    codec::delta_contexts, codec::measure_deltas, codec::move_deltas};

}  // namespace bitsnap::codec
