// Pickles that cost much if a reader believes what they say.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace bitsnap::interop {

// Of about as many bytes each, and complete: floods of values, marks, memos, classes and names, deep nesting, values
// that hold themselves, and values that share others.
[[nodiscard]] std::vector<std::string> hostile_pickles(std::size_t bytes);

}  // namespace bitsnap::interop
