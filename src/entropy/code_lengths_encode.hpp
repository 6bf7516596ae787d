// Chooses the code lengths of a block and writes their table: docs/spec/entropy.md, "Table of code lengths". Pure
// functions with the same result on every machine.
#pragma once

#include "entropy/histogram.hpp"
#include "entropy/huffman.hpp"

namespace bitsnap::entropy {

// The optimal prefix code of at most kMaxCodeBits bits (package-merge). Precondition: at least two symbols occur, and
// the counts sum to less than 2^24.
void choose_code_lengths(const Histogram& counts, CodeLengths& lengths) noexcept;

// Writes the table of code lengths and returns its size, at most kMaxCodeLengthBytes. Precondition: a symbol occurs.
[[nodiscard]] std::size_t write_code_lengths(const CodeLengths& lengths, std::byte* out) noexcept;

}  // namespace bitsnap::entropy
