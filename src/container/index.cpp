// From sections to structures and back, and the snapshot's id. docs/spec/snapshot.md.
#include "container/index.hpp"

#include <utility>

#include <fmt/format.h>

#include "base/hash.hpp"
#include "base/no_throw.hpp"
#include "base/try.hpp"
#include "container/chunk_table.hpp"
#include "container/file_limits.hpp"
#include "container/value_reader.hpp"

namespace bitsnap::container {
namespace {

std::vector<std::byte> to_bytes(std::string_view text) {
  const ConstByteSpan bytes = as_byte_span(text);
  return {bytes.begin(), bytes.end()};
}

SnapshotId compute_id(ConstByteSpan content, ConstByteSpan safetensors_header, const std::vector<ChunkEntry>& chunks) {
  Hasher128 hasher;
  hasher.update(content);
  std::array<std::byte, 8> number;
  store_le<std::uint64_t>(number.data(), safetensors_header.size());
  hasher.update(number);
  hasher.update(safetensors_header);
  for (const ChunkEntry& entry : chunks) {
    store_le(number.data(), entry.decoded_hash);
    hasher.update(number);
  }
  const Hash128 hash = hasher.digest();
  return SnapshotId{hash.low, hash.high};
}

Result<void> split_parameters(const std::optional<std::vector<std::byte>>& section, Index& index) {
  const ConstByteSpan bytes = section ? ConstByteSpan(*section) : ConstByteSpan();
  ByteCursor cursor(bytes);
  index.parameters.reserve(index.encoding.parameter_bytes.size());
  for (const std::uint32_t size : index.encoding.parameter_bytes) {
    if (size > cursor.remaining()) {
      return fail(ErrorKind::corrupt, fmt::format("parameters: a set of {} bytes, but {} of the section's {} remain",
                                                  size, cursor.remaining(), bytes.size()));
    }
    BITSNAP_ASSIGN(const ConstByteSpan set, cursor.take(size, "parameter set"));
    index.parameters.emplace_back(set.begin(), set.end());
  }
  if (cursor.remaining() != 0) {
    return fail(ErrorKind::corrupt, fmt::format("parameters: {} of the section's {} bytes belong to no set",
                                                cursor.remaining(), bytes.size()));
  }
  return {};
}

Result<Index> parse_checked(ConstByteSpan bytes, const Footer& footer, const DecodeLimits& limits) {
  if (bytes.size() != footer.index_bytes) {
    return fail(ErrorKind::internal, fmt::format("{} bytes, expected {}", bytes.size(), footer.index_bytes));
  }
  if (const std::uint64_t hash = hash64(bytes); hash != footer.index_hash) {
    return fail(ErrorKind::corrupt, fmt::format("hash is {:016x}, expected {:016x}", hash, footer.index_hash));
  }
  BITSNAP_ASSIGN(Sections sections, unpack_sections(bytes, limits));
  const std::vector<std::byte>& content = *sections.at(SectionKind::content);
  Index index;
  BITSNAP_ASSIGN(index.content, parse_content(as_text(content), limits));
  BITSNAP_ASSIGN(index.streams, derive_streams(index.content));
  // First, because it bounds the number of streams and chunks, by which the other sections allocate.
  BITSNAP_ASSIGN(index.chunks, parse_chunk_table(*sections.at(SectionKind::chunk_table), index.streams));
  BITSNAP_ASSIGN(index.encoding,
                 parse_encoding(as_text(*sections.at(SectionKind::encoding)), index.streams.streams.size(), limits));
  BITSNAP_TRY(split_parameters(sections.at(SectionKind::parameters), index));
  if (const auto& header = sections.at(SectionKind::safetensors_header)) {
    index.safetensors_header = std::string(as_text(*header));
  }
  const ConstByteSpan header = index.safetensors_header ? as_byte_span(*index.safetensors_header) : ConstByteSpan();
  index.id = compute_id(content, header, index.chunks);
  if (index.id != footer.id) {
    return fail(ErrorKind::corrupt,
                fmt::format("the content has id {}, the footer has {}", index.id.to_hex(), footer.id.to_hex()));
  }
  BITSNAP_TRY(check_chunks(index, footer.index_offset));
  return index;
}

}  // namespace

Result<SerializedIndex> serialize_index(const Index& index, Packing packing) {
  return no_throw("index", [&]() -> Result<SerializedIndex> {
    if (index.streams.first_chunk.empty() || index.chunks.size() != index.streams.first_chunk.back() ||
        index.encoding.streams.size() != index.streams.streams.size() ||
        index.encoding.parameter_bytes.size() != index.parameters.size()) {
      return fail(ErrorKind::internal, "index: chunks, streams or parameters do not match the content");
    }
    Sections sections;
    std::string content = index.content_text.value_or("");
    if (!index.content_text) {
      BITSNAP_ASSIGN(content, serialize_content(index.content));
    }
    sections.at(SectionKind::content) = to_bytes(content);
    sections.at(SectionKind::encoding) = to_bytes(serialize_encoding(index.encoding));
    std::vector<std::byte>& table =
        sections.at(SectionKind::chunk_table).emplace(index.chunks.size() * kChunkEntryBytes);
    for (std::size_t i = 0; i < index.chunks.size(); ++i) {
      serialize_chunk_entry(index.chunks[i], table.data() + i * kChunkEntryBytes);
    }
    std::vector<std::byte> parameters;
    for (const std::vector<std::byte>& set : index.parameters)
      parameters.insert(parameters.end(), set.begin(), set.end());
    if (!parameters.empty()) sections.at(SectionKind::parameters) = std::move(parameters);
    ConstByteSpan header;
    if (index.safetensors_header) {
      header = as_byte_span(*index.safetensors_header);
      sections.at(SectionKind::safetensors_header).emplace(header.begin(), header.end());
    }
    SerializedIndex serialized;
    serialized.id = compute_id(as_byte_span(content), header, index.chunks);
    BITSNAP_ASSIGN(serialized.bytes, pack_sections(sections, packing));
    return serialized;
  });
}

Result<Index> parse_index(ConstByteSpan bytes, const Footer& footer, const DecodeLimits& limits) {
  return no_throw("index", [&]() -> Result<Index> {
    const std::uint64_t file_bytes = footer.index_offset + footer.index_bytes + kFooterBytes;
    Result<Index> index = parse_checked(bytes, footer, limits_for(file_bytes, limits));
    if (index) return index;
    return tl::unexpected(std::move(index).error().within("index"));
  });
}

Result<std::optional<Value>> tree_of(const Index& index, std::uint64_t file_bytes, const DecodeLimits& limits) {
  const Content& content = index.content;
  if (!content.tree) return std::nullopt;
  return parse_tree(*content.tree, content.tensors, limits_for(file_bytes, limits));
}

}  // namespace bitsnap::container
