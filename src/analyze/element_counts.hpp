// What is counted of elements, and of what became of them since an earlier state. Counts are integers, so that parts of
// a tensor can be counted by any thread and added in any order; entropies.hpp makes findings of them.
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

// How a float is made: sign, exponent, mantissa. No exponent bits: it is none.
struct FloatFields {
  unsigned exponent_bits = 0;
  unsigned mantissa_bits = 0;
  bool has_infinity = true;  // otherwise the greatest exponent has numbers, and one NaN of each sign
};

[[nodiscard]] FloatFields float_fields(DType dtype) noexcept;

// Whether a difference of elements means something: not of bytes of unknown meaning, booleans and complex numbers.
[[nodiscard]] bool has_order(DType dtype) noexcept;

using ByteCounts = std::array<std::uint64_t, 256>;

// Symbols of differences: what is below 16 as it is, what is larger by its length and the three bits below its leading
// one; and the sign. The bits below those are taken as they are.
inline constexpr unsigned kExactDifferences = 16;
inline constexpr std::size_t kDifferenceSymbols = 2 * (kExactDifferences + 60 * 8);
inline constexpr std::size_t kExponentContexts = 256;

// By plane least significant first, as bytes lie in memory.
struct ElementCounts {
  std::uint64_t elements = 0;
  std::uint64_t zeros = 0;
  std::uint64_t nans = 0;
  std::uint64_t infinities = 0;
  std::vector<ByteCounts> planes;
  std::vector<std::uint64_t> exponents;  // by value of the field; empty where there is none

  void add(const ElementCounts& other);
};

struct ChangeCounts {
  std::uint64_t elements = 0;
  std::uint64_t changed = 0;
  std::uint64_t sign_changed = 0;
  std::vector<ByteCounts> planes;                // of the XOR
  std::array<std::uint64_t, 65> distances = {};  // [0] for 0, [k] for 2^(k-1) to 2^k - 1
  std::uint64_t low_bits = 0;                    // of differences, those that no symbol tells
  // By context and symbol; one context where the base has no exponent, none at all without an order.
  std::vector<std::uint64_t> differences;

  void add(const ChangeCounts& other);
};

// Preconditions: whole elements; `base` has as many. resource_exhausted without memory for planes.
[[nodiscard]] Result<ElementCounts> count_elements(DType dtype, ConstByteSpan elements, Scratch& scratch);
[[nodiscard]] Result<ChangeCounts> count_changes(DType dtype, ConstByteSpan elements, ConstByteSpan base,
                                                 Scratch& scratch);

}  // namespace bitsnap::analyze
