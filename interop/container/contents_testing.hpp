// Checks what a parser says about a file.
#pragma once

#include <cstdint>
#include <string>

#include "interop/container/contents.hpp"

namespace bitsnap::interop {

// What is wrong with the tensors and views; empty if
// - the tensors are sorted, disjoint, not empty and within the file, and each has the size of its dtype and shape,
// - names are names of a snapshot, and those of the tensors and those of the views are unique,
// - each view is within one tensor: that of its name, if there is one.
[[nodiscard]] std::string find_misplaced(const Contents& contents, std::uint64_t file_bytes);

}  // namespace bitsnap::interop
