// What a sample says of elements that are to be split into a symbol and lower bytes. Sampled places depend on the
// number of elements alone. Kernels in plain arithmetic: no allocation, no failure, any thread, and the same answers
// on every CPU level. `data` holds elements * element_bytes bytes.
#pragma once

#include <cstddef>

#include "base/bytes.hpp"
#include "entropy/histogram.hpp"
#include "entropy/split_elements.hpp"

namespace bitsnap::entropy {

// Counts the symbols of some 2,000 elements, or of all where there are fewer.
void count_symbols(const std::byte* data, const SplitShape& shape, Histogram& counts) noexcept;

// Whether all elements have the symbol of the first. Looks at all of them.
[[nodiscard]] bool has_one_symbol(const std::byte* data, const SplitShape& shape) noexcept;

// Whether each of the lower bytes looks random, in a sample as large.
[[nodiscard]] bool rest_looks_random(const std::byte* data, const SplitShape& shape) noexcept;

}  // namespace bitsnap::entropy
