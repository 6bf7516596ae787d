// Limits for reading files that are not trusted. Each size that a file states is compared with one of these limits, and
// with the remaining bytes, before memory is allocated. Reading fails if a file exceeds a limit.
#pragma once

#include <cstdint>

namespace bitsnap {

struct DecodeLimits {
  std::uint64_t index_bytes = std::uint64_t{1} << 28;   // the index of one file: stored, and decompressed
  std::uint64_t tensors = std::uint64_t{1} << 22;       // entries in a tensor directory
  std::uint64_t tensor_bytes = std::uint64_t{1} << 44;  // one tensor, decoded
  std::uint64_t name_bytes = std::uint64_t{1} << 16;    // the name of one tensor
  std::uint32_t dimensions = 255;                       // dimensions of one tensor
  std::uint32_t tree_depth = 128;                       // nesting of JSON and of the typed tree
  std::uint64_t tree_nodes = std::uint64_t{1} << 24;    // values in the typed tree
  std::uint32_t bases = 4096;                           // entries in the table of bases
  std::uint32_t chain_depth = 64;                       // chunks on one path of dependencies
  std::uint32_t chunk_decodes = 4096;                   // chunks decoded to obtain one chunk
};

}  // namespace bitsnap
