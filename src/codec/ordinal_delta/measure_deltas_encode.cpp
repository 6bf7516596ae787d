#include "codec/ordinal_delta/measure_deltas_encode.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/cpu_dispatch.hpp"
#include "codec/ordinal_delta/ordinal_delta.hpp"

namespace bitsnap::codec {
namespace {

// One element in this many may have an exponent above the top; it shares the top's context.
constexpr std::size_t kPerOutlier = 1024;

// The smallest exponent that at most one element in kPerOutlier exceeds.
std::uint8_t top_of(std::span<const std::uint8_t> exponents, std::uint8_t most) noexcept {
  std::array<std::uint16_t, 256> counts[2] = {};
  for (std::size_t i = 0; i + 1 < exponents.size(); i += 2) {
    ++counts[0][exponents[i]];
    ++counts[1][exponents[i + 1]];
  }
  if (exponents.size() % 2 != 0) ++counts[0][exponents.back()];
  std::size_t top = most;
  std::size_t above = 0;
  for (; top > 0; --top) {
    above += counts[0][top] + std::size_t{counts[1][top]};
    if (above > exponents.size() / kPerOutlier) break;
  }
  return static_cast<std::uint8_t>(top);
}

}  // namespace

Result<void> PartToEncode::open(const DeltasToEncode& deltas, std::size_t most, Scratch& scratch) {
  deltas_ = deltas;
  if (deltas.shortener == nullptr) return {};
  BITSNAP_ASSIGN(short_data_, scratch.take(most * deltas.floats.element_bytes()));
  BITSNAP_ASSIGN(short_base_, scratch.take(most * deltas.floats.element_bytes()));
  return {};
}

bool PartToEncode::take(std::size_t first, std::size_t count) noexcept {
  const std::size_t element_bytes = element_size(deltas_.floats.dtype);
  data = deltas_.data.subspan(first * element_bytes, count * element_bytes);
  base = deltas_.base.subspan(first * element_bytes, count * element_bytes);
  if (deltas_.shortener == nullptr) return true;
  if (!deltas_.shortener->shorten(first, data, short_data_.data())) return false;
  shorten_elements(base, deltas_.floats, short_base_.data());
  data = short_data_.first(count * deltas_.floats.element_bytes());
  base = short_base_.first(data.size());
  return true;
}

void measure_deltas(ConstByteSpan data, ConstByteSpan base, const DeltaGeometry& geometry, std::uint8_t* contexts,
                    std::uint16_t* values, std::uint8_t* low) noexcept {
  const std::size_t elements = data.size() / geometry.element_bytes;
  kernels<OrdinalDeltaKernels>().delta_contexts(as_u8(base), elements, geometry, contexts);
  kernels<OrdinalDeltaKernels>().measure_deltas(as_u8(data), as_u8(base), elements, geometry, values, low);
}

Result<DeltaSample> take_sample(ConstByteSpan data, ConstByteSpan base, const ShortFloats& floats, Scratch& scratch) {
  const std::size_t element_bytes = element_size(floats.dtype);
  const DeltaGeometry geometry = geometry_of(floats);
  const std::size_t elements = data.size() / element_bytes;
  const std::size_t size = std::min(elements, kDeltaRuns.total());
  DeltaSample sample{
      .geometry = geometry, .data = data, .base = base, .contexts = {}, .values = {}, .direct = {}, .low = {}};
  BITSNAP_ASSIGN(sample.contexts, scratch.take_array<std::uint8_t>(size));
  BITSNAP_ASSIGN(sample.values, scratch.take_array<std::uint16_t>(size));
  BITSNAP_ASSIGN(sample.direct, scratch.take_array<std::uint16_t>(size));
  BITSNAP_ASSIGN(sample.low, scratch.take_array<std::uint8_t>(size * 2));
  if (size < elements) {
    BITSNAP_ASSIGN(const ByteSpan own_data, scratch.take(size * element_bytes));
    BITSNAP_ASSIGN(const ByteSpan own_base, scratch.take(size * element_bytes));
    const std::size_t run_bytes = kDeltaRuns.elements * element_bytes;
    for (std::size_t run = 0; run < kDeltaRuns.count; ++run) {
      const std::size_t from = kDeltaRuns.start(run, elements) * element_bytes;
      std::memcpy(own_data.data() + run * run_bytes, data.data() + from, run_bytes);
      std::memcpy(own_base.data() + run * run_bytes, base.data() + from, run_bytes);
    }
    sample.data = own_data;
    sample.base = own_base;
  }
  if (floats.zero_bits > 0) {
    for (ConstByteSpan* const own : {&sample.data, &sample.base}) {
      BITSNAP_ASSIGN(const ByteSpan shortened, scratch.take(size * floats.element_bytes()));
      shorten_elements(*own, floats, shortened.data());
      *own = shortened;
    }
  }
  // First the exponents, as distances from the largest possible one.
  DeltaGeometry whole = geometry;
  whole.top = geometry.exponent_mask;
  whole.last_context = 255;
  kernels<OrdinalDeltaKernels>().delta_contexts(as_u8(sample.base), size, whole, sample.contexts.data());
  for (std::uint8_t& context : sample.contexts) context = static_cast<std::uint8_t>(whole.top - context);
  const unsigned top = top_of(sample.contexts, geometry.most_finite);
  sample.geometry.top = static_cast<std::uint8_t>(top);
  for (std::uint8_t& context : sample.contexts) {
    const unsigned distance = context > top ? 0 : top - context;
    context = static_cast<std::uint8_t>(distance < 31 ? distance : 31);
  }
  return sample;
}

void measure_sample(DeltaSample& sample) noexcept {
  kernels<OrdinalDeltaKernels>().measure_deltas(as_u8(sample.data), as_u8(sample.base), sample.values.size(),
                                                sample.geometry, sample.values.data(), sample.low.data());
}

void measure_sample_directly(DeltaSample& sample) noexcept {
  DeltaGeometry geometry = sample.geometry;
  geometry.first_direct = 0;
  kernels<OrdinalDeltaKernels>().measure_deltas(as_u8(sample.data), as_u8(sample.base), sample.direct.size(), geometry,
                                                sample.direct.data(), sample.low.data());
}

}  // namespace bitsnap::codec
