// Chooses the dense elements and the classes of a slab, from counts by exponent. docs/spec/patch.md, "Writing".
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace bitsnap::patch {

inline constexpr std::size_t kMostExponents = 256;

struct ExponentCounts {
  std::array<std::uint32_t, kMostExponents> elements{};  // estimated, at least `changed`
  std::array<std::uint32_t, kMostExponents> changed{};
  std::array<std::uint32_t, kMostExponents> farther{};  // changed by more than one ULP
};

// As exponents: dense elements are below first[0], those of class i from first[i] to below first[i + 1].
struct ClassChoice {
  std::size_t classes = 0;
  std::array<std::uint32_t, 9> first{};
};

// Precondition: at least one element has changed. At most `most_dense` elements are dense, by the estimate.
[[nodiscard]] ClassChoice choose_classes(const ExponentCounts& counts, std::uint32_t exponents,
                                         std::uint64_t most_dense) noexcept;

}  // namespace bitsnap::patch
