// Writing the content section, and the streams that a content implies. docs/spec/snapshot.md.
//
// The JSON has no white space, and its keys always come in the same order: the snapshot's id is a hash of these bytes.
#include "container/directory.hpp"

#include <algorithm>
#include <bit>
#include <numeric>
#include <set>

#include <fmt/format.h>

#include "base/bytes.hpp"
#include "base/checked.hpp"
#include "base/hash.hpp"
#include "base/no_throw.hpp"
#include "base/quote_name.hpp"
#include "base/try.hpp"
#include "base/utf8.hpp"
#include "json/json_text.hpp"
#include "json/json_writer.hpp"

namespace bitsnap::container {
namespace {

std::uint32_t hash_of(std::string_view name) noexcept { return static_cast<std::uint32_t>(hash64(as_byte_span(name))); }

std::size_t tensor_of(std::uint64_t entry) noexcept { return static_cast<std::uint32_t>(entry); }

}  // namespace

NameIndex::NameIndex(std::span<const TensorInfo> tensors) : entries_(tensors.size()) {
  // By the highest bits of the hash first, which leaves few entries to each sort.
  const int bits = std::clamp(static_cast<int>(std::bit_width(tensors.size())), 1, 12);
  const int shift = 64 - bits;
  std::vector<std::size_t> ends((std::size_t{1} << bits) + 1);
  std::vector<std::uint64_t> unsorted;
  unsorted.reserve(tensors.size());
  for (const TensorInfo& info : tensors) {
    unsorted.push_back(std::uint64_t{hash_of(info.name)} << 32 | unsorted.size());
    ++ends[(unsorted.back() >> shift) + 1];
  }
  std::partial_sum(ends.begin(), ends.end(), ends.begin());
  for (const std::uint64_t entry : unsorted) entries_[ends[entry >> shift]++] = entry;
  std::size_t first = 0;
  for (const std::size_t end : ends) {
    std::sort(entries_.begin() + static_cast<std::ptrdiff_t>(first),
              entries_.begin() + static_cast<std::ptrdiff_t>(end));
    first = end;
  }
  // Few hashes are equal, unless somebody chose the names so.
  const auto name_of = [&](std::uint64_t entry) -> std::string_view { return tensors[tensor_of(entry)].name; };
  for (auto begin = entries_.begin(); begin != entries_.end();) {
    const auto end =
        std::find_if(begin, entries_.end(), [&](std::uint64_t each) { return each >> 32 != *begin >> 32; });
    if (end - begin > 1) std::ranges::sort(begin, end, {}, name_of);
    begin = end;
  }
}

std::optional<std::size_t> NameIndex::find(std::span<const TensorInfo> tensors, std::string_view name) const noexcept {
  const std::uint32_t hash = hash_of(name);
  const auto is_before = [&](std::uint64_t entry, std::string_view wanted) {
    const auto entry_hash = static_cast<std::uint32_t>(entry >> 32);
    return entry_hash != hash ? entry_hash < hash : std::string_view(tensors[tensor_of(entry)].name) < wanted;
  };
  const auto found = std::lower_bound(entries_.begin(), entries_.end(), name, is_before);
  if (found == entries_.end() || tensors[tensor_of(*found)].name != name) return std::nullopt;
  return tensor_of(*found);
}

std::optional<std::size_t> NameIndex::find_duplicate(std::span<const TensorInfo> tensors) const noexcept {
  const auto is_same = [&](std::uint64_t a, std::uint64_t b) {
    return a >> 32 == b >> 32 && tensors[tensor_of(a)].name == tensors[tensor_of(b)].name;
  };
  const auto found = std::ranges::adjacent_find(entries_, is_same);
  if (found == entries_.end()) return std::nullopt;
  return tensor_of(*found);
}

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
