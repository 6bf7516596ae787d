#include "container/chunk_table.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/checked.hpp"
#include "base/quote_name.hpp"
#include "base/try.hpp"

namespace bitsnap::container {
namespace {

// The smallest depth that the inputs allow, and whether it is exact: chunks in bases are unknown here.
struct DepthBound {
  std::uint32_t least = 0;
  bool exact = true;
};

// Checks one chunk's inputs against the entries of the chunks that they cover.
Result<DepthBound> check_inputs(const Index& index, std::size_t stream, std::uint64_t chunk, const ChunkEntry& entry) {
  const std::vector<StreamInput>& inputs = index.encoding.streams[stream].inputs;
  const std::uint64_t first = chunk * kChunkElements;
  const std::uint64_t count = chunk_elements(index.streams.streams[stream], chunk);
  DepthBound bound;
  for (const std::uint8_t number : entry.inputs) {
    if (number == kNoInput) break;
    if (number >= inputs.size()) {
      return fail(ErrorKind::corrupt,
                  fmt::format("refers to input {}, the stream has {} inputs", number, inputs.size()));
    }
    const StreamInput& input = inputs[number];
    const auto begin = checked_add(input.element, first);
    const auto end = begin ? checked_add(*begin, count) : std::nullopt;
    if (!end) return fail(ErrorKind::corrupt, fmt::format("input {}: element {} overflows", number, input.element));
    if (input.base) {
      bound.least = std::max(bound.least, 1U);
      bound.exact = false;
      continue;
    }
    const auto source = static_cast<std::size_t>(input.stream);
    const std::uint64_t elements = index.streams.streams[source].elements;
    if (*end > elements) {
      return fail(ErrorKind::corrupt, fmt::format("input {}: elements {} to {} exceed stream {}, which has {} elements",
                                                  number, *begin, *end, source, elements));
    }
    const std::uint64_t base_chunk = index.streams.first_chunk[source];
    for (std::uint64_t touched = *begin / kChunkElements; touched <= (*end - 1) / kChunkElements; ++touched) {
      bound.least =
          std::max<std::uint32_t>(bound.least, index.chunks[static_cast<std::size_t>(base_chunk + touched)].depth);
    }
  }
  return bound;
}

Result<void> check_chunk(const Index& index, std::size_t stream, std::uint64_t chunk, const ChunkEntry& entry) {
  const StreamInfo& info = index.streams.streams[stream];
  const std::uint64_t raw = chunk_elements(info, chunk) * element_size(info.dtype);
  if (entry.stored_bytes > raw) {
    return fail(ErrorKind::corrupt,
                fmt::format("the payload has {} bytes, more than the {} decoded bytes", entry.stored_bytes, raw));
  }
  const std::size_t sets = index.encoding.streams[stream].parameters.size();
  if (entry.parameters != kNoParameters && entry.parameters >= sets) {
    return fail(ErrorKind::corrupt,
                fmt::format("refers to parameter set {}, the stream has {} sets", entry.parameters, sets));
  }
  BITSNAP_ASSIGN(const DepthBound bound, check_inputs(index, stream, chunk, entry));
  if (entry.depth < bound.least || (bound.exact && entry.depth > bound.least)) {
    return fail(ErrorKind::corrupt, fmt::format("depth is {}, expected {}{} from its inputs", entry.depth, bound.least,
                                                bound.exact ? "" : " or more"));
  }
  return {};
}

Result<void> check_extents(const Index& index, std::uint64_t index_offset) {
  std::vector<std::pair<std::uint64_t, std::uint32_t>> extents;
  extents.reserve(index.chunks.size());
  for (const ChunkEntry& entry : index.chunks) {
    if (entry.stored_bytes > 0) extents.emplace_back(entry.offset, entry.stored_bytes);
  }
  std::sort(extents.begin(), extents.end());
  std::uint64_t at = kHeaderBytes;
  for (const auto& [offset, size] : extents) {
    if (offset != at) {
      return fail(ErrorKind::corrupt,
                  fmt::format("chunk table: a payload begins at offset {}, expected {}", offset, at));
    }
    const auto end = checked_add(at, std::uint64_t{size});
    if (!end || *end > index_offset) {
      return fail(
          ErrorKind::corrupt,
          fmt::format("chunk table: a payload of {} bytes at offset {} exceeds the payload area, which ends at {}",
                      size, offset, index_offset));
    }
    at = *end;
  }
  if (at != index_offset) {
    return fail(ErrorKind::corrupt,
                fmt::format("chunk table: payloads end at {}, the index begins at {}", at, index_offset));
  }
  return {};
}

}  // namespace

std::uint64_t chunk_elements(const StreamInfo& stream, std::uint64_t chunk) noexcept {
  return std::min(kChunkElements, stream.elements - chunk * kChunkElements);
}

ChunkRange touched_chunks(const StreamInput& input, const StreamInfo& stream, std::uint64_t chunk) noexcept {
  const std::uint64_t first = input.element + chunk * kChunkElements;
  return {first / kChunkElements, (first + chunk_elements(stream, chunk) - 1) / kChunkElements};
}

std::string chunk_place(const Content& content, const StreamInfo& stream, std::uint64_t chunk) {
  if (!stream.tensor) return fmt::format("pool, chunk {}", chunk);
  return fmt::format("{}, chunk {}", quote_tensor(content.tensors[*stream.tensor].name), chunk);
}

Result<std::vector<ChunkEntry>> parse_chunk_table(ConstByteSpan section, const StreamTable& streams) {
  const std::uint64_t count = streams.first_chunk.back();
  if (section.size() % kChunkEntryBytes != 0 || section.size() / kChunkEntryBytes != count) {
    return fail(ErrorKind::corrupt, fmt::format("chunk table: {} bytes, expected {} entries of {}", section.size(),
                                                count, kChunkEntryBytes));
  }
  std::vector<ChunkEntry> entries;
  entries.reserve(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < count; ++i) {
    Result<ChunkEntry> entry = parse_chunk_entry(section.subspan(i * kChunkEntryBytes, kChunkEntryBytes));
    if (!entry) return tl::unexpected(std::move(entry).error().within(fmt::format("chunk table, entry {}", i)));
    entries.push_back(*entry);
  }
  return entries;
}

Result<void> check_chunks(const Index& index, std::uint64_t index_offset) {
  std::size_t number = 0;
  for (std::size_t stream = 0; stream < index.streams.streams.size(); ++stream) {
    const StreamInfo& info = index.streams.streams[stream];
    for (std::uint64_t chunk = 0; chunk * kChunkElements < info.elements; ++chunk, ++number) {
      Result<void> checked = check_chunk(index, stream, chunk, index.chunks[number]);
      if (!checked) return tl::unexpected(std::move(checked).error().within(chunk_place(index.content, info, chunk)));
    }
  }
  return check_extents(index, index_offset);
}

}  // namespace bitsnap::container
