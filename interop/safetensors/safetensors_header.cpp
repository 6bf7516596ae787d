// The header is read and written tensor by tensor; nothing but the tensors is ever built in memory.
#include "interop/safetensors/safetensors_header.hpp"

#include <algorithm>
#include <array>
#include <tuple>
#include <type_traits>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/bytes.hpp"
#include "base/quote_name.hpp"
#include "base/try.hpp"
#include "base/utf8.hpp"
#include "json/json_fields.hpp"

namespace bitsnap::interop {
namespace {

using json::JsonReader;
using json::JsonWriter;

// The one key of a header that is no tensor's name.
constexpr std::string_view kMetadataKey = "__metadata__";

struct Entry {
  std::string name;
  std::string dtype;
  std::vector<std::uint64_t> shape;
  std::vector<std::uint64_t> offsets;
  std::size_t position = 0;              // in the header
  const DecodeLimits* limits = nullptr;  // set before reading
};

constexpr auto json_fields(std::type_identity<Entry>) {
  auto shape = json::json_field<&Entry::shape>("shape");
  shape.read = [](JsonReader& in, Entry& to) {
    return read_json_list(in, to.shape, json::read_json<std::uint64_t>,
                          {.item = "dimension", .items = "dimensions", .most = to.limits->dimensions});
  };
  auto offsets = json::json_field<&Entry::offsets>("data_offsets");
  offsets.read = [](JsonReader& in, Entry& to) {
    return read_json_list(in, to.offsets, json::read_json<std::uint64_t>,
                          {.item = "offset", .items = "ascending numbers", .most = 2});
  };
  return std::array{json::json_field<&Entry::dtype>("dtype"), shape,
                    offsets.must("two ascending numbers", [](const Entry& entry) {
                      return entry.offsets.size() == 2 && entry.offsets[0] <= entry.offsets[1];
                    })};
}

std::string place_of(std::string_view tensor) { return fmt::format("tensor {}", quote_name(tensor)); }

tl::unexpected<Error> corrupt(std::string_view tensor, std::string_view what) {
  return fail(ErrorKind::corrupt, fmt::format("{}: {}", place_of(tensor), what));
}

using Metadata = std::vector<std::pair<std::string, std::string>>;

Result<void> read_metadata(JsonReader& in, Metadata& metadata) {
  return in.read_object([&](std::string_view key) -> Result<void> {
    Result<std::string> text = in.read_string();
    if (!text) return tl::unexpected(json::within_json_key(std::move(text).error(), key));
    metadata.emplace_back(key, std::move(*text));
    return {};
  });
}

// The entries in the order of the header.
Result<std::vector<Entry>> read_entries(JsonReader& in, Metadata& metadata, const DecodeLimits& limits) {
  std::vector<Entry> entries;
  const auto read_member = [&](std::string_view name) -> Result<void> {
    if (name == kMetadataKey) {
      Result<void> read = read_metadata(in, metadata);
      if (!read) return tl::unexpected(std::move(read).error().within(kMetadataKey));
      return read;
    }
    if (entries.size() >= limits.tensors) {
      return fail(ErrorKind::corrupt, fmt::format("more than {} tensors", limits.tensors));
    }
    if (name.size() > limits.name_bytes) {
      return fail(ErrorKind::corrupt, fmt::format("a tensor name of {} bytes exceeds the limit of {} bytes",
                                                  name.size(), limits.name_bytes));
    }
    Entry& entry = entries.emplace_back();
    entry.limits = &limits;
    Result<void> read =
        json::read_json_fields<Entry>(in, entry, json::json_fields_of<Entry>(), json::reject_as_corrupt);
    entry.name = name;
    if (!read) return tl::unexpected(std::move(read).error().within(place_of(entry.name)));
    return read;
  };
  BITSNAP_TRY(in.read_object(read_member));
  return entries;
}

Result<TensorInfo> to_tensor(const Entry& entry) {
  TensorInfo info;
  info.name = entry.name;
  info.dtype_name = entry.dtype;
  info.dtype = dtype_from_name(entry.dtype);
  info.shape = entry.shape;
  info.size_bytes = entry.offsets[1] - entry.offsets[0];
  info.role = guess_role(info.name, info.dtype);
  const auto expected = shape_size_bytes(info.dtype, info.shape);
  if (!expected) return corrupt(entry.name, expected.error().message());
  if (info.dtype != DType::opaque && *expected != info.size_bytes) {
    return corrupt(entry.name,
                   fmt::format("dtype {} and shape [{}] need {} bytes, but its data_offsets [{}, {}] span {} bytes",
                               info.dtype_name, fmt::join(info.shape, ", "), *expected, entry.offsets[0],
                               entry.offsets[1], info.size_bytes));
  }
  return info;
}

}  // namespace

bool looks_like_safetensors(std::string_view start, std::uint64_t file_bytes) noexcept {
  if (start.size() <= kLengthBytes || start[kLengthBytes] != '{') return false;
  const auto header_bytes = load_le<std::uint64_t>(as_byte_span(start).data());
  return header_bytes <= kMaxHeaderBytes && header_bytes <= file_bytes - kLengthBytes;
}

Result<SafetensorsHeader> parse_safetensors_header(std::string_view json, std::uint64_t data_bytes,
                                                   const DecodeLimits& limits) {
  SafetensorsHeader header;
  const auto read = [&](JsonReader& in) { return read_entries(in, header.metadata, limits); };
  Result<std::vector<Entry>> entries = json::read_whole_json(json, read);
  if (!entries) return tl::unexpected(std::move(entries).error().within("safetensors header"));
  // Tensors without data begin where others do; they keep the order of the header.
  for (std::size_t i = 0; i < entries->size(); ++i) (*entries)[i].position = i;
  std::ranges::sort(*entries, {},
                    [](const Entry& entry) { return std::tuple(entry.offsets[0], entry.offsets[1], entry.position); });
  std::uint64_t end = 0;
  for (const Entry& entry : *entries) {
    BITSNAP_ASSIGN(TensorInfo info, to_tensor(entry));
    const std::uint64_t begin = entry.offsets[0];
    if (begin != end) {
      return corrupt(entry.name, fmt::format("its {} bytes begin at offset {} of the data, expected {} ({})",
                                             info.size_bytes, begin, end, begin > end ? "gap" : "overlap"));
    }
    end = entry.offsets[1];
    header.tensors.push_back(std::move(info));
  }
  if (end > data_bytes) {
    return fail(ErrorKind::truncated,
                fmt::format("safetensors header: the tensors need {} bytes of data, found {} bytes", end, data_bytes));
  }
  if (end < data_bytes) {
    return fail(ErrorKind::corrupt,
                fmt::format("safetensors header: the tensors take {} bytes of data, found {} bytes", end, data_bytes));
  }
  return header;
}

Result<std::optional<Value>> take_tree(SafetensorsHeader& header, const DecodeLimits& limits) {
  const auto found = std::ranges::find(header.metadata, kTreeKey, &std::pair<std::string, std::string>::first);
  if (found == header.metadata.end()) return std::nullopt;
  BITSNAP_ASSIGN(Value tree, parse_value(found->second, header.tensors.size(), limits));
  header.metadata.erase(found);
  return tree;
}

Result<void> put_tree(SafetensorsHeader& header, const std::optional<Value>& tree) {
  if (!tree) return {};
  BITSNAP_ASSIGN(std::string text, serialize_value(*tree));
  const auto found = std::ranges::find(header.metadata, kTreeKey, &std::pair<std::string, std::string>::first);
  (found != header.metadata.end() ? *found : header.metadata.emplace_back(kTreeKey, "")).second = std::move(text);
  return {};
}

Result<std::string> make_safetensors_header(const SafetensorsHeader& header) {
  JsonWriter out;
  out.begin_object();
  if (!header.metadata.empty()) {
    out.key(kMetadataKey);
    out.begin_object();
    for (const auto& [key, value] : header.metadata) {
      out.key(key);
      out.string(value);
    }
    out.end_object();
  }
  std::uint64_t offset = 0;
  for (const TensorInfo& info : header.tensors) {
    if (info.name == kMetadataKey) {
      return fail(ErrorKind::invalid_argument,
                  fmt::format("the tensor name {} is reserved in safetensors files", kMetadataKey));
    }
    out.key(info.name);
    write_json(
        out,
        Entry{
            .name = {}, .dtype = info.dtype_name, .shape = info.shape, .offsets = {offset, offset + info.size_bytes}});
    offset += info.size_bytes;
  }
  out.end_object();
  std::string text = out.take_text();
  if (!is_utf8(text)) {
    return fail(ErrorKind::invalid_argument, "tensor names and metadata must be valid UTF-8 in a safetensors file");
  }
  text.resize((text.size() + 7) / 8 * 8, ' ');
  if (text.size() > kMaxHeaderBytes) {
    return fail(ErrorKind::invalid_argument,
                fmt::format("a safetensors header of {} bytes is larger than the format's limit of {}", text.size(),
                            kMaxHeaderBytes));
  }
  return text;
}

Result<std::uint64_t> write_safetensors_header(std::string_view text,
                                               const std::function<Result<void>(std::span<const std::byte>)>& sink) {
  std::array<std::byte, kLengthBytes> length{};
  store_le<std::uint64_t>(length.data(), text.size());
  BITSNAP_TRY(sink(length));
  BITSNAP_TRY(sink(as_byte_span(text)));
  return kLengthBytes + text.size();
}

}  // namespace bitsnap::interop
