// Counts of elements, and of their changes since an earlier state. Counts are integers, so that any thread can count
// parts of a tensor and add them in any order; count_findings.hpp turns them into findings.
//
// Used by one thread at a time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <bitsnap/dtype.hpp>

#include "base/bytes.hpp"
#include "base/scratch.hpp"

namespace bitsnap::analyze {

// Widths of the fields of a float; exponent_bits is 0 for other dtypes.
struct FloatFields {
  unsigned exponent_bits = 0;
  unsigned mantissa_bits = 0;
  bool has_infinity = true;  // false: the greatest exponent holds numbers, and one NaN per sign
};

[[nodiscard]] FloatFields float_fields(DType dtype) noexcept;

// Whether elements have an order: false for opaque bytes, booleans and complex numbers.
[[nodiscard]] bool has_order(DType dtype) noexcept;

using ByteCounts = std::array<std::uint64_t, 256>;

// Symbols of differences: values below 16 are symbols of their own; larger ones are grouped by bit length and the three
// bits below the leading one. Each has a sign. The remaining low bits are counted as raw.
inline constexpr unsigned kExactDifferences = 16;
inline constexpr std::size_t kDifferenceSymbols = 2 * (kExactDifferences + 60 * 8);
inline constexpr std::size_t kExponentContexts = 256;

// Planes are in memory order, the least significant first.
struct ElementCounts {
  std::uint64_t elements = 0;
  std::uint64_t zeros = 0;
  std::uint64_t nans = 0;
  std::uint64_t infinities = 0;
  std::vector<ByteCounts> planes;
  std::vector<std::uint64_t> exponents;  // by exponent; empty for dtypes without exponents

  void add(const ElementCounts& other);
};

struct ChangeCounts {
  std::uint64_t elements = 0;
  std::uint64_t changed = 0;
  std::uint64_t sign_changed = 0;
  std::vector<ByteCounts> planes;                // of the XOR
  std::array<std::uint64_t, 65> distances = {};  // [0] for 0, [k] for 2^(k-1) to 2^k - 1
  std::uint64_t low_bits = 0;                    // low bits of differences that symbols do not hold
  // By context (exponent of the base) and symbol; empty for a context without elements. One context for integers, none
  // for dtypes without an order.
  std::vector<std::vector<std::uint64_t>> differences;

  void add(const ChangeCounts& other);
};

// Preconditions: whole elements; `base` is as long. Fails with resource_exhausted without memory for planes.
[[nodiscard]] Result<ElementCounts> count_elements(DType dtype, ConstByteSpan elements, Scratch& scratch);
[[nodiscard]] Result<ChangeCounts> count_changes(DType dtype, ConstByteSpan elements, ConstByteSpan base,
                                                 Scratch& scratch);

}  // namespace bitsnap::analyze
