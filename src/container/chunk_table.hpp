// What the chunk entries of one file have to obey together: docs/spec/snapshot.md, "Chunk table".
#pragma once

#include <string>

#include <bitsnap/error.hpp>

#include "container/index.hpp"

namespace bitsnap::container {

// Bytes of chunk `chunk` of a stream, decoded, and its elements.
[[nodiscard]] std::uint64_t chunk_elements(const StreamInfo& stream, std::uint64_t chunk) noexcept;

// The chunks that the input of a chunk touches, of the stream that the input names.
struct ChunkRange {
  std::uint64_t first = 0;
  std::uint64_t last = 0;
};
// Precondition: the chunk has this input and was checked.
[[nodiscard]] ChunkRange touched_chunks(const StreamInput& input, const StreamInfo& stream,
                                        std::uint64_t chunk) noexcept;

// "tensor 'x', chunk 3", "pool, chunk 0".
[[nodiscard]] std::string chunk_place(const Content& content, const StreamInfo& stream, std::uint64_t chunk);

// The entries from the raw section, as many as the streams have chunks.
[[nodiscard]] Result<std::vector<ChunkEntry>> parse_chunk_table(ConstByteSpan section, const StreamTable& streams);

// Sizes, parameters, inputs and depths of all chunks, and that the payloads fill the bytes from the header to
// `index_offset`. What an input takes from a base is not known here.
[[nodiscard]] Result<void> check_chunks(const Index& index, std::uint64_t index_offset);

}  // namespace bitsnap::container
