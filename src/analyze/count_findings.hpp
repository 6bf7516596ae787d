// What counts say: shares and entropies of order 0, in bits per element. Any thread may call these.
#pragma once

#include <cstdint>
#include <span>

#include <bitsnap/analysis.hpp>

#include "analyze/element_counts.hpp"

namespace bitsnap::analyze {

// In bits for each that was counted; 0 where nothing was.
[[nodiscard]] double entropy_of(std::span<const std::uint64_t> counts) noexcept;

// All of `findings` that elements alone say; `elements` is what the counted ones stand for.
void set_findings(const ElementCounts& counts, DType dtype, std::uint64_t elements, Findings& findings);

[[nodiscard]] ChangeFindings make_findings(const ChangeCounts& counts, DType dtype, std::uint64_t elements);

// Adds those of a tensor to those of its group, of the same dtype: means by the elements that each stands for.
void merge_findings(Findings& group, const Findings& tensor);

}  // namespace bitsnap::analyze
