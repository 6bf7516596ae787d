// Statistics of a sample of elements that may be split into a symbol and lower bytes. The sampled places depend on the
// number of elements alone. Plain arithmetic: no allocation, no failure, any thread, the same results on every CPU
// level. `data` holds elements * element_bytes bytes.
#pragma once

#include <cstddef>

#include "base/bytes.hpp"
#include "base/spread_runs.hpp"
#include "entropy/histogram.hpp"
#include "entropy/split_elements.hpp"

namespace bitsnap::entropy {

// The sample; all elements if there are fewer.
inline constexpr SpreadRuns kSymbolRuns{.count = 128, .elements = 16, .alignment = 16};

// Counts the symbols of about 2,000 elements, or of all if there are fewer.
void count_symbols(const std::byte* data, const SplitShape& shape, Histogram& counts) noexcept;

// Whether all elements (not only a sample) have the same symbol.
[[nodiscard]] bool has_one_symbol(const std::byte* data, const SplitShape& shape) noexcept;

// Whether each of the lower bytes looks random in a sample of the same size.
[[nodiscard]] bool rest_looks_random(const std::byte* data, const SplitShape& shape) noexcept;

}  // namespace bitsnap::entropy
