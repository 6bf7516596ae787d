// Findings from counts: shares and order-0 entropies in bits per element. Any thread may call these functions.
#pragma once

#include <cstdint>
#include <span>

#include <bitsnap/analysis.hpp>

#include "analyze/element_counts.hpp"

namespace bitsnap::analyze {

// In bits per counted symbol; 0 if nothing was counted.
[[nodiscard]] double entropy_of(std::span<const std::uint64_t> counts) noexcept;

// Sets the findings that depend on the elements alone; `elements` is the number that the counted ones stand for.
void set_findings(const ElementCounts& counts, DType dtype, std::uint64_t elements, Findings& findings);

[[nodiscard]] ChangeFindings make_findings(const ChangeCounts& counts, DType dtype, std::uint64_t elements);

// Merges the findings of a tensor into those of its group of the same dtype: means are weighted by elements.
void merge_findings(Findings& group, const Findings& tensor);

}  // namespace bitsnap::analyze
