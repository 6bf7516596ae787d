// Writing the two JSON sections, and the streams that a content implies. docs/spec/snapshot.md.
//
// Compact, keys always in the same order: the bytes of the content decide the snapshot's id.
#include "container/directory.hpp"

#include <set>

#include <fmt/format.h>

#include "base/checked.hpp"
#include "base/no_throw.hpp"
#include "base/try.hpp"
#include "container/json_text.hpp"
#include "container/quantizer_json.hpp"

namespace bitsnap::container {
namespace {

void append_list(std::string& to, const std::vector<std::uint64_t>& numbers) {
  to += '[';
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    if (i > 0) to += ',';
    append_decimal(to, numbers[i]);
  }
  to += ']';
}

void append_list(std::string& to, const std::vector<std::uint32_t>& numbers) {
  to += '[';
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    if (i > 0) to += ',';
    append_decimal(to, std::uint64_t{numbers[i]});
  }
  to += ']';
}

Result<void> append_text(std::string& to, std::string_view text) {
  if (!is_utf8(text)) return fail(ErrorKind::invalid_argument, fmt::format("{} is not UTF-8", quote_name(text)));
  append_json_string(to, text);
  return {};
}

// For what only people read: bytes that are no UTF-8 become question marks.
void append_remark(std::string& to, std::string_view text) {
  if (is_utf8(text)) {
    append_json_string(to, text);
    return;
  }
  std::string ascii(text);
  for (char& c : ascii) {
    if (static_cast<unsigned char>(c) >= 0x80) c = '?';
  }
  append_json_string(to, ascii);
}

Result<void> append_tensor(std::string& to, const TensorInfo& info, const std::optional<std::uint64_t>& pool_offset) {
  to += "{\"name\":";
  BITSNAP_TRY(append_text(to, info.name));
  to += ",\"dtype\":";
  if (info.dtype == DType::opaque) {
    if (dtype_from_name(info.dtype_name) != DType::opaque) {
      return fail(ErrorKind::invalid_argument, fmt::format("tensor {}: dtype {} is known, not opaque",
                                                           quote_name(info.name), quote_name(info.dtype_name)));
    }
    BITSNAP_TRY(append_text(to, info.dtype_name));
  } else {
    append_json_string(to, dtype_name(info.dtype));
  }
  to += ",\"shape\":";
  append_list(to, info.shape);
  to += ",\"role\":";
  append_json_string(to, role_name(info.role));
  if (info.alias_of) {
    to += ",\"alias\":";
    append_decimal(to, std::uint64_t{*info.alias_of});
  }
  if (pool_offset) {
    to += ",\"pool\":";
    append_decimal(to, *pool_offset);
  }
  if (info.dtype == DType::opaque) {
    to += ",\"bytes\":";
    append_decimal(to, info.size_bytes);
  }
  if (info.shard) {
    to += ",\"global_shape\":";
    append_list(to, info.shard->global_shape);
    to += ",\"offset\":";
    append_list(to, info.shard->offset);
  }
  to += '}';
  return {};
}

void append_input(std::string& to, const StreamInput& input) {
  to += '{';
  if (input.base) {
    to += "\"base\":";
    append_decimal(to, std::uint64_t{*input.base});
    to += ',';
  }
  to += "\"stream\":";
  append_decimal(to, input.stream);
  to += ",\"element\":";
  append_decimal(to, input.element);
  to += '}';
}

void append_stream(std::string& to, const StreamEncoding& stream) {
  to += '{';
  if (stream.rank > 0) to += fmt::format("\"rank\":{}", stream.rank);
  if (!stream.inputs.empty()) {
    to += to.back() == '{' ? "\"inputs\":[" : ",\"inputs\":[";
    for (std::size_t i = 0; i < stream.inputs.size(); ++i) {
      if (i > 0) to += ',';
      append_input(to, stream.inputs[i]);
    }
    to += ']';
  }
  if (!stream.parameters.empty()) {
    to += to.back() == '{' ? "\"parameters\":" : ",\"parameters\":";
    append_list(to, stream.parameters);
  }
  if (!stream.reason.empty()) {
    to += to.back() == '{' ? "\"reason\":" : ",\"reason\":";
    append_remark(to, stream.reason);
  }
  if (stream.quantizer) {
    to += to.back() == '{' ? "\"quantizer\":" : ",\"quantizer\":";
    append_quantizer(to, *stream.quantizer);
  }
  to += '}';
}

}  // namespace

Result<std::string> serialize_content(const Content& content) {
  return no_throw("content", [&]() -> Result<std::string> {
    std::string json = "{\"tensors\":[";
    for (std::size_t i = 0; i < content.tensors.size(); ++i) {
      if (i > 0) json += ',';
      BITSNAP_TRY(append_tensor(json, content.tensors[i], content.pool_offsets[i]));
    }
    json += ']';
    if (content.pool_bytes > 0) {
      json += ",\"pool\":";
      append_decimal(json, content.pool_bytes);
    }
    if (!content.metadata.empty()) {
      std::set<std::string_view> keys;
      json += ",\"metadata\":{";
      for (const auto& [key, value] : content.metadata) {
        if (!keys.insert(key).second) {
          return fail(ErrorKind::invalid_argument, fmt::format("metadata: key {} stands twice", quote_name(key)));
        }
        if (keys.size() > 1) json += ',';
        BITSNAP_TRY(append_text(json, key));
        json += ':';
        BITSNAP_TRY(append_text(json, value));
      }
      json += '}';
    }
    if (content.tree) {
      json += ",\"tree\":";
      BITSNAP_ASSIGN(const std::string tree, serialize_value(*content.tree));
      json += tree;
    }
    json += '}';
    return json;
  });
}

std::string serialize_encoding(const Encoding& encoding) {
  std::string json = "{\"writer\":";
  append_remark(json, encoding.writer);
  json += ",\"policy\":";
  append_remark(json, encoding.policy);
  if (!encoding.objective.empty()) {
    json += ",\"objective\":";
    append_remark(json, encoding.objective);
  }
  if (!encoding.bases.empty()) {
    json += ",\"bases\":[";
    for (std::size_t i = 0; i < encoding.bases.size(); ++i) {
      json += i > 0 ? ",{\"id\":\"" : "{\"id\":\"";
      json += encoding.bases[i].id.to_hex();
      json += "\",\"name\":";
      append_remark(json, encoding.bases[i].name);
      json += '}';
    }
    json += ']';
  }
  if (!encoding.parameter_bytes.empty()) {
    json += ",\"parameters\":";
    append_list(json, encoding.parameter_bytes);
  }
  json += ",\"streams\":[";
  for (std::size_t i = 0; i < encoding.streams.size(); ++i) {
    if (i > 0) json += ',';
    append_stream(json, encoding.streams[i]);
  }
  json += "]}";
  return json;
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
      // Not chunk_count(): what it adds to round up could overflow.
      const auto sum = checked_add(chunks, divide_up(stream.elements, kChunkElements));
      if (!sum) return fail(ErrorKind::corrupt, "the number of chunks overflows");
      chunks = *sum;
    }
    table.first_chunk.push_back(chunks);
    return table;
  });
}

}  // namespace bitsnap::container
