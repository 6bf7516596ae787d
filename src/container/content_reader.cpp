// parse_content(): the content section. docs/spec/snapshot.md, "Content".
//
// The rules of one tensor's entry are checked when it has been read, those between entries (names, pool) when all have
// been, and those of the tree by parse_tree().
#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <bitsnap/limits.hpp>

#include "base/checked.hpp"
#include "base/no_throw.hpp"
#include "base/quote_name.hpp"
#include "base/try.hpp"
#include "container/directory.hpp"
#include "json/json_fields.hpp"

namespace bitsnap::container {
namespace {

// One entry of the content section's 'tensors' as plain data; directory.cpp writes the same fields.
struct TensorEntry {
  std::string name;
  std::string dtype;
  std::vector<std::uint64_t> shape;
  std::string role;
  std::optional<std::uint64_t> alias = {};
  std::optional<std::uint64_t> pool = {};
  std::optional<std::uint64_t> bytes = {};
  std::optional<std::vector<std::uint64_t>> global_shape = {};
  std::optional<std::vector<std::uint64_t>> offset = {};
  std::optional<std::string> global_name = {};
  const DecodeLimits* limits = nullptr;  // set before reading
};

// A list of dimensions, of which there are at most limits->dimensions.
template <auto kMember>
[[nodiscard]] constexpr json::JsonField<TensorEntry> dimensions_field(std::string_view key, json::JsonNeed need) {
  json::JsonField<TensorEntry> field = json::json_field<kMember>(key, need);
  field.read = [](json::JsonReader& in, TensorEntry& to) -> Result<void> {
    std::vector<std::uint64_t> numbers;
    BITSNAP_TRY(json::read_json_list(in, numbers, json::read_json<std::uint64_t>,
                                     {.item = "dimension",
                                      .items = "dimensions",
                                      .most = to.limits->dimensions,
                                      .too_many = ErrorKind::resource_exhausted}));
    to.*kMember = std::move(numbers);
    return {};
  };
  return field;
}

constexpr auto json_fields(std::type_identity<TensorEntry>) {
  using Entry = TensorEntry;
  return std::array{json::json_field<&Entry::name>("name"),
                    json::json_field<&Entry::dtype>("dtype"),
                    dimensions_field<&Entry::shape>("shape", json::JsonNeed::required),
                    json::json_field<&Entry::role>("role"),
                    json::json_field<&Entry::alias>("alias", json::JsonNeed::optional),
                    json::json_field<&Entry::pool>("pool", json::JsonNeed::optional),
                    json::json_field<&Entry::bytes>("bytes", json::JsonNeed::optional),
                    dimensions_field<&Entry::global_shape>("global_shape", json::JsonNeed::optional),
                    dimensions_field<&Entry::offset>("offset", json::JsonNeed::optional),
                    json::json_field<&Entry::global_name>("global_name", json::JsonNeed::optional)};
}

using json::JsonNeed;
using json::JsonReader;

// The numbers of a list that serialize_content() wrote, after its opening bracket.
struct PlainNumbers {
  std::array<std::uint64_t, 8> numbers{};
  std::size_t count = 0;

  bool read(JsonReader& in) {
    if (in.accept_literal("]")) return true;
    do {
      if (count == numbers.size() || !in.accept_plain_unsigned(numbers[count])) return false;
      ++count;
    } while (in.accept_literal(","));
    return in.accept_literal("]");
  }
  [[nodiscard]] std::vector<std::uint64_t> vector() const {
    return {numbers.begin(), numbers.begin() + static_cast<std::ptrdiff_t>(count)};
  }
};

class ContentReader {
 public:
  explicit ContentReader(const DecodeLimits& limits) : limits_(limits) {}

  Result<Content> read(JsonReader& in) {
    using Field = json::JsonField<ContentReader>;
    static constexpr std::array kFields = {
        Field{.key = "tensors", .read = [](JsonReader& from, ContentReader& to) { return to.read_tensors(from); }},
        Field{.key = "pool",
              .need = JsonNeed::optional,
              .read = [](JsonReader& from, ContentReader& to) { return to.read_pool(from); }},
        Field{.key = "metadata",
              .need = JsonNeed::optional,
              .read = [](JsonReader& from, ContentReader& to) { return to.read_metadata(from); }},
        Field{
            .key = "tree", .need = JsonNeed::optional, .read = [](JsonReader& from, ContentReader& to) -> Result<void> {
              BITSNAP_ASSIGN(to.content_.tree, from.read_text());
              return {};
            }}};
    BITSNAP_TRY(json::read_json_fields<ContentReader>(in, *this, kFields, json::reject_as_unsupported));
    BITSNAP_TRY(check_names());
    BITSNAP_TRY(check_pool());
    return std::move(content_);
  }

 private:
  static constexpr std::size_t kDimensionsOfATensor = 32;
  static constexpr std::size_t kSampledTensors = 256;

  Result<void> read_tensors(JsonReader& in) {
    const std::size_t begin = in.position();
    return in.read_array([&]() -> Result<void> {
      if (content_.tensors.size() == kSampledTensors) reserve_for_all(in, begin);
      if (!content_.tensors.empty()) counted_ += 1 + content_.tensors.back().shape.size() / kDimensionsOfATensor;
      if (counted_ >= limits_.tensors) {
        return fail(ErrorKind::resource_exhausted, fmt::format("more tensors than the limit of {}", limits_.tensors));
      }
      if (read_plain(in)) return {};
      TensorEntry entry;
      entry.limits = &limits_;
      Result<void> read = json::read_json_fields<TensorEntry>(in, entry, json::json_fields_of<TensorEntry>(),
                                                              json::reject_as_unsupported, "a tensor's entry");
      if (read) read = add_tensor(entry);
      if (read) return read;
      std::string place = fmt::format("tensor {}", content_.tensors.size());
      if (!entry.name.empty()) place += " " + quote_name(entry.name);
      return tl::unexpected(std::move(read).error().within(place));
    });
  }

  // Makes room for all tensors if the first ones are as long as the others: growing step by step copies everything.
  void reserve_for_all(const JsonReader& in, std::size_t begin) {
    const std::size_t bytes_of_one = (in.position() - begin) / kSampledTensors;
    const std::uint64_t expected = kSampledTensors + in.remaining() / bytes_of_one;
    const auto room = static_cast<std::size_t>(std::min(expected, limits_.tensors));
    content_.tensors.reserve(room);
    content_.pool_offsets.reserve(room);
  }

  // Adds a tensor whose entry is what serialize_content() writes for most, many times as fast as by the table of
  // fields. False, with nothing read, for any other entry.
  bool read_plain(JsonReader& in) {
    const std::size_t begin = in.position();
    std::string_view name;
    std::string_view dtype;
    std::string_view role;
    std::string_view global_name;
    std::optional<std::uint64_t> pool;
    TensorInfo& info = content_.tensors.emplace_back();
    PlainNumbers shape;
    PlainNumbers global_shape;
    PlainNumbers offset;
    const auto read_entry = [&] {
      if (!in.accept_literal(R"({"name":)") || !in.accept_plain_string(name)) return false;
      if (!in.accept_literal(R"(,"dtype":)") || !in.accept_plain_string(dtype)) return false;
      if (!in.accept_literal(R"(,"shape":[)") || !shape.read(in)) return false;
      if (!in.accept_literal(R"(,"role":)") || !in.accept_plain_string(role)) return false;
      if (in.accept_literal(R"(,"pool":)") && !in.accept_plain_unsigned(pool.emplace())) return false;
      if (in.accept_literal(R"(,"global_shape":[)")) {
        if (!global_shape.read(in) || !in.accept_literal(R"(,"offset":[)") || !offset.read(in)) return false;
        if (in.accept_literal(R"(,"global_name":)") && (!in.accept_plain_string(global_name) || global_name.empty())) {
          return false;
        }
        info.shard = ShardBox{global_shape.vector(), offset.vector(), std::string(global_name)};
      }
      return in.accept_literal("}");
    };
    const auto is_valid = [&] {
      const std::optional<Role> known_role = role_from_name(role);
      info.dtype = dtype_from_name(dtype);
      if (!known_role || info.dtype == DType::opaque || name.size() > limits_.name_bytes) return false;
      if (shape.count > limits_.dimensions) return false;
      info.role = *known_role;
      info.shape = shape.vector();
      if (info.shard && (!check_box(info.shape, *info.shard) || !check_global_name(name, *info.shard))) return false;
      const Result<std::uint64_t> size = shape_size_bytes(info.dtype, info.shape);
      if (!size || *size > limits_.tensor_bytes || (*size == 0 && pool)) return false;
      info.size_bytes = *size;
      return true;
    };
    if (read_entry() && is_valid()) {
      info.name = name;
      info.dtype_name = dtype;
      content_.pool_offsets.push_back(pool);
      return true;
    }
    content_.tensors.pop_back();
    in.return_to(begin);
    return false;
  }

  Result<void> read_pool(JsonReader& in) {
    BITSNAP_ASSIGN(content_.pool_bytes, in.read_unsigned());
    if (content_.pool_bytes == 0) return fail(ErrorKind::corrupt, "expected at least 1 byte, found 0");
    if (content_.pool_bytes > limits_.tensor_bytes) return too_large("a pool", content_.pool_bytes);
    return {};
  }

  Result<void> read_metadata(JsonReader& in) {
    return in.read_object([&](std::string_view key) -> Result<void> {
      Result<std::string> text = in.read_string();
      if (!text) return tl::unexpected(json::within_json_key(std::move(text).error(), key));
      if (content_.metadata.size() == limits_.metadata_entries) {
        return fail(ErrorKind::resource_exhausted,
                    fmt::format("more metadata than the limit of {} entries", limits_.metadata_entries));
      }
      content_.metadata.emplace_back(key, std::move(*text));
      return {};
    });
  }

  Result<void> add_tensor(TensorEntry& entry) {
    if (entry.name.size() > limits_.name_bytes) {
      return fail(ErrorKind::resource_exhausted, fmt::format("a name of {} bytes exceeds the limit of {} bytes",
                                                             entry.name.size(), limits_.name_bytes));
    }
    TensorInfo info;
    info.dtype = dtype_from_name(entry.dtype);
    const std::optional<Role> role = role_from_name(entry.role);
    if (!role) return fail(ErrorKind::corrupt, fmt::format("unknown role {}", quote_name(entry.role)));
    info.role = *role;
    Result<std::uint64_t> size = shape_size_bytes(info.dtype, entry.shape);
    if (!size) return fail(ErrorKind::corrupt, std::move(size).error().message());
    info.size_bytes = *size;
    if (info.dtype == DType::opaque) {
      if (!entry.bytes) return fail(ErrorKind::corrupt, "an opaque dtype without 'bytes'");
      info.size_bytes = *entry.bytes;
    } else if (entry.bytes) {
      return fail(ErrorKind::corrupt, "'bytes' with a known dtype");
    }
    if (info.size_bytes > limits_.tensor_bytes) return too_large("a tensor", info.size_bytes);
    BITSNAP_ASSIGN(info.shard, shard_of(entry));
    BITSNAP_TRY(check_place(entry, info));
    if (entry.alias) info.alias_of = static_cast<std::size_t>(*entry.alias);
    info.name = std::move(entry.name);
    info.dtype_name = std::move(entry.dtype);
    info.shape = std::move(entry.shape);
    content_.tensors.push_back(std::move(info));
    content_.pool_offsets.push_back(entry.pool);
    return {};
  }

  Result<std::optional<ShardBox>> shard_of(TensorEntry& entry) const {
    if (entry.global_shape.has_value() != entry.offset.has_value()) {
      return fail(ErrorKind::corrupt, "'global_shape' and 'offset' must be given together");
    }
    if (!entry.global_shape && entry.global_name) return fail(ErrorKind::corrupt, "'global_name' without 'offset'");
    if (!entry.global_shape) return std::nullopt;
    if (entry.global_name && entry.global_name->empty()) return fail(ErrorKind::corrupt, "'global_name' is empty");
    ShardBox box{std::move(*entry.global_shape), std::move(*entry.offset), std::move(entry.global_name).value_or("")};
    BITSNAP_TRY(check_box(entry.shape, box));
    BITSNAP_TRY(check_global_name(entry.name, box));
    return box;
  }

  static Result<void> check_box(const std::vector<std::uint64_t>& shape, const ShardBox& box) {
    if (box.global_shape.size() != shape.size() || box.offset.size() != shape.size()) {
      return fail(ErrorKind::corrupt, fmt::format("'shape', 'global_shape' and 'offset' have {}, {} and {} numbers",
                                                  shape.size(), box.global_shape.size(), box.offset.size()));
    }
    for (std::size_t i = 0; i < shape.size(); ++i) {
      const auto end = checked_add(box.offset[i], shape[i]);
      if (!end || *end > box.global_shape[i]) {
        return fail(ErrorKind::corrupt, fmt::format("dimension {}: {} elements at {} exceed a global shape of {}", i,
                                                    shape[i], box.offset[i], box.global_shape[i]));
      }
    }
    return {};
  }

  Result<void> check_global_name(std::string_view name, const ShardBox& box) const {
    if (box.global_name == name) return fail(ErrorKind::corrupt, "'global_name' is the tensor's own name");
    if (box.global_name.size() <= limits_.name_bytes) return {};
    return fail(ErrorKind::resource_exhausted, fmt::format("a global name of {} bytes exceeds the limit of {} bytes",
                                                           box.global_name.size(), limits_.name_bytes));
  }

  Result<void> check_place(const TensorEntry& entry, const TensorInfo& info) const {
    if (info.size_bytes == 0 && (entry.alias || entry.pool)) {
      return fail(ErrorKind::corrupt, "an empty tensor with 'alias' or 'pool'");
    }
    if (entry.alias && entry.pool) return fail(ErrorKind::corrupt, "'alias' and 'pool' exclude each other");
    if (!entry.alias) return {};
    if (*entry.alias >= content_.tensors.size()) {
      return fail(ErrorKind::corrupt, fmt::format("'alias' is {}, expected an earlier tensor", *entry.alias));
    }
    const TensorInfo& target = content_.tensors[static_cast<std::size_t>(*entry.alias)];
    if (target.alias_of) return fail(ErrorKind::corrupt, fmt::format("'alias' {} is an alias itself", *entry.alias));
    if (target.size_bytes != info.size_bytes) {
      return fail(ErrorKind::corrupt,
                  fmt::format("found {} bytes, but the target of 'alias' has {}", info.size_bytes, target.size_bytes));
    }
    return {};
  }

  Result<void> check_names() {
    content_.names = NameIndex(content_.tensors);
    const std::optional<std::size_t> duplicate = content_.names.find_duplicate(content_.tensors);
    if (!duplicate) return {};
    return fail(ErrorKind::corrupt,
                fmt::format("duplicate tensor name {}", quote_name(content_.tensors[*duplicate].name)));
  }

  Result<void> check_pool() const {
    for (std::size_t i = 0; i < content_.tensors.size(); ++i) {
      const std::optional<std::uint64_t>& offset = content_.pool_offsets[i];
      if (!offset) continue;
      const TensorInfo& info = content_.tensors[i];
      const auto end = checked_add(*offset, info.size_bytes);
      if (!end || *end > content_.pool_bytes) {
        return fail(ErrorKind::corrupt,
                    fmt::format("tensor {}: {} bytes at offset {} exceed the pool of {} bytes", quote_name(info.name),
                                info.size_bytes, *offset, content_.pool_bytes));
      }
    }
    return {};
  }

  [[nodiscard]] Result<void> too_large(std::string_view what, std::uint64_t size) const {
    return fail(ErrorKind::resource_exhausted,
                fmt::format("{} of {} bytes exceeds the limit of {} bytes", what, size, limits_.tensor_bytes));
  }

  const DecodeLimits& limits_;
  Content content_;
  std::uint64_t counted_ = 0;  // tensors, with their dimensions
};

}  // namespace

Result<Content> parse_content(std::string_view json, const DecodeLimits& limits) {
  return no_throw("content", [&]() -> Result<Content> {
    ContentReader reader(limits);
    Result<Content> content = json::read_whole_json(json, [&](JsonReader& in) { return reader.read(in); });
    if (content) return content;
    return tl::unexpected(std::move(content).error().within("content"));
  });
}

}  // namespace bitsnap::container
