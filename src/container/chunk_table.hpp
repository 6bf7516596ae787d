// The chunk table: its entries, and the rules between them. docs/spec/snapshot.md, "Chunk table". Pure functions.
#pragma once

#include <string>

#include <bitsnap/error.hpp>

#include "container/index.hpp"

namespace bitsnap::container {

// The number of elements of a chunk of a stream.
[[nodiscard]] std::uint64_t chunk_elements(const StreamInfo& stream, std::uint64_t chunk) noexcept;

// The chunks of the input's stream that the input of one chunk covers.
struct ChunkRange {
  std::uint64_t first = 0;
  std::uint64_t last = 0;
};
// Precondition: the chunk has this input and was checked.
[[nodiscard]] ChunkRange touched_chunks(const StreamInput& input, const StreamInfo& stream,
                                        std::uint64_t chunk) noexcept;

// "tensor 'x', chunk 3", "pool, chunk 0".
[[nodiscard]] std::string chunk_place(const Content& content, const StreamInfo& stream, std::uint64_t chunk);

// Parses the raw section; corrupt unless it has one entry for each chunk of the streams.
[[nodiscard]] Result<std::vector<ChunkEntry>> parse_chunk_table(ConstByteSpan section, const StreamTable& streams);

// Checks sizes, parameters, inputs and depths of all chunks, and that the payloads fill the bytes from the header to
// `index_offset`. Inputs from bases cannot be checked here.
[[nodiscard]] Result<void> check_chunks(const Index& index, std::uint64_t index_offset);

}  // namespace bitsnap::container
