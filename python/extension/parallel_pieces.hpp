// A range that several threads read in pieces.
#pragma once

#include <cstdint>
#include <functional>

#include <bitsnap/error.hpp>

namespace bitsnap::python {

// Reads of fewer bytes are made by the calling thread alone.
inline constexpr std::uint64_t kParallelReadBytes = std::uint64_t{4} << 20;

// Calls work(piece) for all pieces, with up to `threads` threads; 0: one for each CPU. The error is that of the first
// bad piece. Needs no GIL.
[[nodiscard]] Result<void> for_each_piece(std::uint64_t pieces, unsigned threads,
                                          const std::function<Result<void>(std::uint64_t piece)>& work);

}  // namespace bitsnap::python
