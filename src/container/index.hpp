// The whole index of a snapshot file, parsed and serialized, with the snapshot's id. Pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <bitsnap/error.hpp>
#include <bitsnap/limits.hpp>
#include <bitsnap/snapshot.hpp>
#include <bitsnap/value.hpp>

#include "base/bytes.hpp"
#include "container/directory.hpp"
#include "container/layout.hpp"
#include "container/section.hpp"

namespace bitsnap::container {

struct Index {
  Content content;
  // The JSON of the content if another writer's bytes must be kept, because the id is a hash of them; nullopt: it is
  // serialized from `content`. Not set by parsing.
  std::optional<std::string> content_text;
  Encoding encoding;
  StreamTable streams;  // derived from the content
  std::vector<ChunkEntry> chunks;
  std::vector<std::vector<std::byte>> parameters;
  std::optional<std::string> safetensors_header;
  SnapshotId id;  // over content, safetensors header and decoded hashes
};

// The stored bytes of an index, and the id for the footer.
struct SerializedIndex {
  std::vector<std::byte> bytes;
  SnapshotId id;
};

// Precondition: streams, chunks and encoding match the content. `packing` is that of pack_sections().
[[nodiscard]] Result<SerializedIndex> serialize_index(const Index& index, Packing packing = Packing::small);

// Checks everything that the format requires of an index: sections, JSON, streams, chunk entries (sizes, inputs,
// parameters, payloads that cover [64, index_offset) exactly), and that the id equals the footer's.
[[nodiscard]] Result<Index> parse_index(ConstByteSpan bytes, const Footer& footer, const DecodeLimits& limits);

// The typed tree, read from its text and checked; nullopt if there is none.
[[nodiscard]] Result<std::optional<Value>> tree_of(const Index& index, std::uint64_t file_bytes,
                                                   const DecodeLimits& limits);

}  // namespace bitsnap::container
