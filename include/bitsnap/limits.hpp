// What a reader is willing to spend on a file it does not trust. Each size a file states is held against one of these,
// and against the bytes that remain, before anything is allocated.
#pragma once

#include <cstdint>

namespace bitsnap {

struct DecodeLimits {
  std::uint64_t index_bytes = std::uint64_t{1} << 28;   // the index of one file, as stored and unpacked
  std::uint64_t tensors = std::uint64_t{1} << 22;       // entries in a tensor directory
  std::uint64_t tensor_bytes = std::uint64_t{1} << 44;  // one tensor, decoded
  std::uint64_t name_bytes = std::uint64_t{1} << 16;    // one tensor name
  std::uint32_t rank = 255;                             // dimensions of one tensor
  std::uint32_t tree_depth = 128;                       // nesting of JSON and of the typed tree
  std::uint64_t tree_nodes = std::uint64_t{1} << 24;    // values in the typed tree
  std::uint32_t bases = 4096;                           // entries in the table of bases
  std::uint32_t chain_depth = 64;                       // chunks on one path of dependence
  std::uint32_t chunk_decodes = 4096;                   // chunks decoded for the sake of one
};

}  // namespace bitsnap
