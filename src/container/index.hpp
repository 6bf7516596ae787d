// The whole index of a snapshot file: put together and taken apart, with the snapshot's id.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <bitsnap/error.hpp>
#include <bitsnap/limits.hpp>
#include <bitsnap/snapshot.hpp>

#include "base/bytes.hpp"
#include "container/directory.hpp"
#include "container/layout.hpp"

namespace bitsnap::container {

struct Index {
  Content content;
  // The JSON of the content where it has to stay, byte for byte, what another writer made it, as the id is over these
  // bytes. Not filled in by parsing. nullopt: it is made from the content.
  std::optional<std::string> content_text;
  Encoding encoding;
  StreamTable streams;  // derived from the content
  std::vector<ChunkEntry> chunks;
  std::vector<std::vector<std::byte>> parameters;
  std::optional<std::string> safetensors_header;
  SnapshotId id;  // over content, safetensors header and decoded hashes
};

// The index bytes as they are stored, and the id that belongs into the footer.
struct SerializedIndex {
  std::vector<std::byte> bytes;
  SnapshotId id;
};

// Precondition: streams, chunks and encoding fit the content. Sections are compressed where that makes them smaller.
[[nodiscard]] Result<SerializedIndex> serialize_index(const Index& index);

// Checks all that the format demands of an index by itself and against the size of the payload area: sections, JSON,
// streams, chunk entries (sizes, inputs, parameters, extents that cover [64, index_offset) exactly), and the id against
// the footer's.
[[nodiscard]] Result<Index> parse_index(ConstByteSpan bytes, const Footer& footer, const DecodeLimits& limits);

}  // namespace bitsnap::container
