// Limits for reading files that are not trusted. Each size that a file states is compared with one of these limits, and
// with the remaining bytes, before memory is allocated. Reading fails if a file exceeds a limit.
//
// Further limits follow from the size of the file, so that a small file never costs much (docs/guide/limits.md): they
// bound the index and the work of an operation. bitsnap writes no file that they refuse. `max_cost` multiplies them.
#pragma once

#include <cstdint>

namespace bitsnap {

// The factor for all reads of this process that state no other: BITSNAP_MAX_COST of the environment when it is first
// needed, or 1.
[[nodiscard]] double max_cost() noexcept;

// Below 1, files that bitsnap writes may be refused. False, without effect, unless `factor` is finite and above 0.
// Thread-safe; holds for what is opened later.
bool set_max_cost(double factor) noexcept;

struct DecodeLimits {
  std::uint64_t index_bytes = std::uint64_t{1} << 28;       // the index of one file: stored, and decompressed
  std::uint64_t tensors = std::uint64_t{1} << 22;           // entries in a tensor directory; 16 dimensions count as one
  std::uint64_t metadata_entries = std::uint64_t{1} << 20;  // strings of the caller in one file
  std::uint64_t tensor_bytes = std::uint64_t{1} << 44;      // one tensor, decoded
  std::uint64_t name_bytes = std::uint64_t{1} << 16;        // the name of one tensor
  std::uint32_t dimensions = 255;                           // dimensions of one tensor
  std::uint32_t tree_depth = 128;                           // nesting of JSON and of the typed tree
  std::uint64_t tree_nodes = std::uint64_t{1} << 24;  // values in the typed tree; 8 digits of an integer count as one
  std::uint64_t integer_digits = 100'000;             // decimal digits of one integer of the typed tree
  std::uint32_t bases = 4096;                         // entries in the table of bases
  std::uint32_t chain_depth = 64;                     // chunks on one path of dependencies
  std::uint32_t chunk_decodes = 4096;                 // chunks decoded to obtain one chunk
  double max_cost = bitsnap::max_cost();              // multiplies the limits that follow from the size of the file
};

}  // namespace bitsnap
