// Counting elements, differences and the bytes of their planes.
#include "analyze/element_counts.hpp"

#include <algorithm>
#include <bit>
#include <limits>

#include "entropy/histogram.hpp"
#include "entropy/planes.hpp"
#include "tensor/ordinal.hpp"

namespace bitsnap::analyze {
namespace {

template <typename T>
constexpr unsigned kWidth = std::numeric_limits<T>::digits;

// Calls `body` with a zero of the unsigned integer type of `bytes` bytes.
template <typename Body>
void with_integer(std::size_t bytes, Body&& body) {
  switch (bytes) {
    case 1: return body(std::uint8_t{});
    case 2: return body(std::uint16_t{});
    case 4: return body(std::uint32_t{});
    default: return body(std::uint64_t{});
  }
}

template <typename T>
T exponent_of(T bits, const FloatFields& fields) noexcept {
  return static_cast<T>((bits >> fields.mantissa_bits) & ((T{1} << fields.exponent_bits) - 1));
}

template <typename T>
void count_values(const FloatFields& fields, ConstByteSpan elements, ElementCounts& counts) noexcept {
  const bool is_float = fields.exponent_bits > 0;
  const T top_exponent = static_cast<T>((T{1} << fields.exponent_bits) - 1);
  const T mantissa_mask = static_cast<T>((T{1} << fields.mantissa_bits) - 1);
  for (std::size_t at = 0; at < elements.size(); at += sizeof(T)) {
    const T bits = load_le<T>(elements.data() + at);
    if (!is_float) {
      counts.zeros += bits == 0 ? 1 : 0;
      continue;
    }
    const T exponent = exponent_of(bits, fields);
    const T mantissa = static_cast<T>(bits & mantissa_mask);
    ++counts.exponents[exponent];
    counts.zeros += exponent == 0 && mantissa == 0 ? 1 : 0;
    if (exponent != top_exponent) continue;
    const bool is_infinite = fields.has_infinity && mantissa == 0;
    counts.infinities += is_infinite ? 1 : 0;
    counts.nans += fields.has_infinity ? (mantissa != 0 ? 1 : 0) : (mantissa == mantissa_mask ? 1 : 0);
  }
}

struct Difference {
  std::size_t symbol = 0;
  unsigned low_bits = 0;
};

template <typename T>
Difference symbol_of(T difference) noexcept {
  const bool is_negative = (difference >> (kWidth<T> - 1)) != 0;
  const T magnitude = is_negative ? static_cast<T>(T{0} - difference) : difference;
  if (magnitude < kExactDifferences) return {2 * std::size_t{magnitude} + (is_negative ? 1 : 0), 0};
  const auto length = static_cast<unsigned>(std::bit_width(magnitude));
  const std::size_t head = static_cast<std::size_t>(magnitude >> (length - 4)) & 7;
  return {2 * (kExactDifferences + 8 * (length - 5) + head) + (is_negative ? 1 : 0), length - 4};
}

template <typename T>
void count_differences(DType dtype, ConstByteSpan elements, ConstByteSpan base, ChangeCounts& counts) {
  const tensor::OrdinalKind kind = tensor::ordinal_kind(dtype);
  const bool ordered = has_order(dtype);
  const bool has_sign = ordered && kind != tensor::OrdinalKind::unsigned_integer;
  const FloatFields fields = float_fields(dtype);
  // Of F64, the upper 8 bits of the exponent are the context.
  const unsigned dropped = fields.exponent_bits > 8 ? fields.exponent_bits - 8 : 0;
  for (std::size_t at = 0; at < elements.size(); at += sizeof(T)) {
    const T bits = load_le<T>(elements.data() + at);
    const T other = load_le<T>(base.data() + at);
    counts.changed += bits != other ? 1 : 0;
    if (has_sign) counts.sign_changed += (bits ^ other) >> (kWidth<T> - 1);
    if (!ordered) continue;
    ++counts.distances[static_cast<std::size_t>(std::bit_width(tensor::ordinal_distance(bits, other, kind)))];
    const auto delta = static_cast<T>(tensor::to_ordinal(bits, kind) - tensor::to_ordinal(other, kind));
    const Difference difference = symbol_of(delta);
    const std::size_t context =
        fields.exponent_bits > 0 ? static_cast<std::size_t>(exponent_of(other, fields)) >> dropped : 0;
    std::vector<std::uint64_t>& symbols = counts.differences[context];
    if (symbols.empty()) symbols.resize(kDifferenceSymbols);
    ++symbols[difference.symbol];
    counts.low_bits += difference.low_bits;
  }
}

// Bytes by plane: of the elements, or of their XOR with the base if it is not empty.
Result<std::vector<ByteCounts>> count_planes(std::size_t element_bytes, ConstByteSpan elements, ConstByteSpan base,
                                             Scratch& scratch) {
  const Scratch::Frame frame(scratch);
  const std::size_t count = elements.size() / element_bytes;
  std::array<std::byte*, entropy::kMaxElementSize> planes{};
  for (std::size_t i = 0; i < element_bytes; ++i) {
    BITSNAP_ASSIGN(const ByteSpan plane, scratch.take(count));
    planes[i] = plane.data();
  }
  if (base.empty()) {
    entropy::split_planes(elements.data(), count, element_bytes, planes.data());
  } else {
    entropy::xor_split_planes(elements.data(), base.data(), count, element_bytes, planes.data());
  }
  std::vector<ByteCounts> counts(element_bytes);
  for (std::size_t i = 0; i < element_bytes; ++i) {
    entropy::Histogram histogram{};
    entropy::count_bytes(planes[i], count, histogram);
    std::ranges::copy(histogram, counts[i].begin());
  }
  return counts;
}

template <typename Counts>
void add_counts(Counts& counts, const Counts& other) {
  for (std::size_t i = 0; i < counts.size(); ++i) counts[i] += other[i];
}

void add_planes(std::vector<ByteCounts>& planes, const std::vector<ByteCounts>& other) {
  for (std::size_t i = 0; i < planes.size(); ++i) add_counts(planes[i], other[i]);
}

}  // namespace

FloatFields float_fields(DType dtype) noexcept {
  switch (dtype) {
    case DType::f8_e4m3: return {4, 3, false};
    case DType::f8_e5m2: return {5, 2};
    case DType::f16: return {5, 10};
    case DType::bf16: return {8, 7};
    case DType::f32: return {8, 23};
    case DType::f64: return {11, 52};
    default: return {};
  }
}

bool has_order(DType dtype) noexcept {
  return dtype != DType::opaque && dtype != DType::boolean && dtype != DType::c64;
}

void ElementCounts::add(const ElementCounts& other) {
  if (elements == 0) {
    *this = other;
    return;
  }
  elements += other.elements;
  zeros += other.zeros;
  nans += other.nans;
  infinities += other.infinities;
  add_planes(planes, other.planes);
  add_counts(exponents, other.exponents);
}

void ChangeCounts::add(const ChangeCounts& other) {
  if (elements == 0) {
    *this = other;
    return;
  }
  elements += other.elements;
  changed += other.changed;
  sign_changed += other.sign_changed;
  low_bits += other.low_bits;
  add_planes(planes, other.planes);
  add_counts(distances, other.distances);
  for (std::size_t i = 0; i < differences.size(); ++i) {
    if (differences[i].empty()) {
      differences[i] = other.differences[i];
    } else if (!other.differences[i].empty()) {
      add_counts(differences[i], other.differences[i]);
    }
  }
}

Result<ElementCounts> count_elements(DType dtype, ConstByteSpan elements, Scratch& scratch) {
  const std::size_t element_bytes = element_size(dtype);
  const FloatFields fields = float_fields(dtype);
  ElementCounts counts;
  counts.elements = elements.size() / element_bytes;
  if (fields.exponent_bits > 0) counts.exponents.assign(std::size_t{1} << fields.exponent_bits, 0);
  BITSNAP_ASSIGN(counts.planes, count_planes(element_bytes, elements, {}, scratch));
  with_integer(element_bytes, [&](auto zero) { count_values<decltype(zero)>(fields, elements, counts); });
  return counts;
}

Result<ChangeCounts> count_changes(DType dtype, ConstByteSpan elements, ConstByteSpan base, Scratch& scratch) {
  const std::size_t element_bytes = element_size(dtype);
  ChangeCounts counts;
  counts.elements = elements.size() / element_bytes;
  if (has_order(dtype)) counts.differences.resize(is_float(dtype) ? kExponentContexts : 1);
  BITSNAP_ASSIGN(counts.planes, count_planes(element_bytes, elements, base, scratch));
  with_integer(element_bytes, [&](auto zero) { count_differences<decltype(zero)>(dtype, elements, base, counts); });
  return counts;
}

}  // namespace bitsnap::analyze
