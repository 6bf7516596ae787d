// Writing the content section, and the streams that a content implies. docs/spec/snapshot.md.
//
// The JSON has no white space, and its keys always come in the same order: the snapshot's id is a hash of these bytes.
#include "container/directory.hpp"

#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "base/checked.hpp"
#include "base/no_throw.hpp"
#include "base/quote_name.hpp"
#include "base/try.hpp"
#include "base/utf8.hpp"
#include "json/json_text.hpp"
#include "json/json_writer.hpp"

namespace bitsnap::container {
namespace {

using json::JsonWriter;

Result<void> check_utf8(std::string_view text) {
  if (is_utf8(text)) return {};
  return fail(ErrorKind::invalid_argument, fmt::format("{} is not valid UTF-8", quote_name(text)));
}

Result<void> check_opaque(const TensorInfo& info) {
  if (dtype_from_name(info.dtype_name) == DType::opaque) return check_utf8(info.dtype_name);
  return fail(ErrorKind::invalid_argument, fmt::format("tensor {}: dtype {} is known, not opaque",
                                                       quote_name(info.name), quote_name(info.dtype_name)));
}

void write_number(JsonWriter& out, std::string_view key, std::uint64_t number) {
  out.key(key);
  out.number(number);
}

void write_numbers(JsonWriter& out, std::string_view key, const std::vector<std::uint64_t>& numbers) {
  out.key(key);
  out.begin_array();
  for (const std::uint64_t number : numbers) out.number(number);
  out.end_array();
}

// The fields are those of TensorEntry, which is not used here because it copies.
Result<void> write_tensor(JsonWriter& out, const TensorInfo& info, const std::optional<std::uint64_t>& pool_offset) {
  BITSNAP_TRY(check_utf8(info.name));
  const bool is_opaque = info.dtype == DType::opaque;
  if (is_opaque) BITSNAP_TRY(check_opaque(info));
  out.begin_object();
  out.key("name");
  out.string(info.name);
  out.key("dtype");
  out.string(is_opaque ? info.dtype_name : dtype_name(info.dtype));
  write_numbers(out, "shape", info.shape);
  out.key("role");
  out.string(role_name(info.role));
  if (info.alias_of) write_number(out, "alias", *info.alias_of);
  if (pool_offset) write_number(out, "pool", *pool_offset);
  if (is_opaque) write_number(out, "bytes", info.size_bytes);
  if (info.shard) {
    write_numbers(out, "global_shape", info.shard->global_shape);
    write_numbers(out, "offset", info.shard->offset);
    if (!info.shard->global_name.empty()) {
      BITSNAP_TRY(check_utf8(info.shard->global_name));
      out.key("global_name");
      out.string(info.shard->global_name);
    }
  }
  out.end_object();
  return {};
}

Result<void> write_metadata(JsonWriter& out, const std::vector<std::pair<std::string, std::string>>& metadata) {
  std::set<std::string_view> keys;
  out.begin_object();
  for (const auto& [key, value] : metadata) {
    if (!keys.insert(key).second) {
      return fail(ErrorKind::invalid_argument, fmt::format("metadata: key {} appears twice", quote_name(key)));
    }
    BITSNAP_TRY(check_utf8(key));
    BITSNAP_TRY(check_utf8(value));
    out.key(key);
    out.string(value);
  }
  out.end_object();
  return {};
}

}  // namespace

Result<std::string> serialize_content(const Content& content) {
  BITSNAP_ASSIGN(const std::string tensors, serialize_tensors(content));
  return serialize_content(content, tensors);
}

Result<std::string> serialize_tensors(const Content& content) {
  return no_throw("content", [&]() -> Result<std::string> {
    JsonWriter out(json::JsonEscapes::without_b_and_f);
    out.begin_array();
    for (std::size_t i = 0; i < content.tensors.size(); ++i) {
      BITSNAP_TRY(write_tensor(out, content.tensors[i], content.pool_offsets[i]));
    }
    out.end_array();
    return out.take_text();
  });
}

Result<std::string> serialize_content(const Content& content, std::string_view tensors) {
  return no_throw("content", [&]() -> Result<std::string> {
    JsonWriter out(json::JsonEscapes::without_b_and_f);
    out.begin_object();
    out.key("tensors");
    out.json(tensors);
    if (content.pool_bytes > 0) {
      out.key("pool");
      out.number(content.pool_bytes);
    }
    if (!content.metadata.empty()) {
      out.key("metadata");
      BITSNAP_TRY(write_metadata(out, content.metadata));
    }
    if (content.tree) {
      out.key("tree");
      out.json(*content.tree);
    }
    out.end_object();
    return out.take_text();
  });
}

std::size_t StreamTable::stream_of_chunk(std::uint64_t number) const noexcept {
  // No stream is empty, so the numbers of their first chunks differ.
  return static_cast<std::size_t>(std::ranges::upper_bound(first_chunk, number) - first_chunk.begin()) - 1;
}

Result<StreamTable> derive_streams(const Content& content) {
  return no_throw("streams", [&]() -> Result<StreamTable> {
    StreamTable table;
    table.stream_of.resize(content.tensors.size());
    for (std::size_t i = 0; i < content.tensors.size(); ++i) {
      const TensorInfo& info = content.tensors[i];
      if (info.size_bytes == 0 || info.alias_of || content.pool_offsets[i]) continue;
      table.stream_of[i] = table.streams.size();
      table.streams.push_back(StreamInfo{info.dtype, info.element_count(), i});
    }
    if (content.pool_bytes > 0) {
      table.pool = table.streams.size();
      table.streams.push_back(StreamInfo{DType::u8, content.pool_bytes, std::nullopt});
    }
    table.first_chunk.reserve(table.streams.size() + 1);
    std::uint64_t chunks = 0;
    for (const StreamInfo& stream : table.streams) {
      table.first_chunk.push_back(chunks);
      // chunk_count() rounds up, which could overflow.
      const auto sum = checked_add(chunks, divide_up(stream.elements, kChunkElements));
      if (!sum) return fail(ErrorKind::corrupt, "the number of chunks overflows");
      chunks = *sum;
    }
    table.first_chunk.push_back(chunks);
    return table;
  });
}

}  // namespace bitsnap::container
