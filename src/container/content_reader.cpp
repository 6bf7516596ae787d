// parse_content(): the content section. docs/spec/snapshot.md, "Content".
//
// What one entry says by itself is checked when it ends; what needs the others (names, pool, references) at the end.
#include <algorithm>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/checked.hpp"
#include "base/no_throw.hpp"
#include "base/try.hpp"
#include "container/directory.hpp"
#include "container/json_reader.hpp"
#include "container/json_text.hpp"
#include "container/value_reader.hpp"

namespace bitsnap::container {
namespace {

using Type = JsonToken::Type;

// The keys of one tensor entry as they came.
struct Entry {
  std::optional<std::string> name;
  std::optional<std::string> dtype;
  std::optional<std::string> role;
  std::optional<std::uint64_t> alias;
  std::optional<std::uint64_t> pool;
  std::optional<std::uint64_t> bytes;
  std::optional<std::vector<std::uint64_t>> shape;
  std::optional<std::vector<std::uint64_t>> global_shape;
  std::optional<std::vector<std::uint64_t>> offset;
};

class ContentSink final : public JsonSink {
 public:
  explicit ContentSink(const DecodeLimits& limits) : limits_(limits), tree_(limits) {}

  Result<void> take(JsonToken& token) override {
    switch (state_) {
      case State::before:
        if (!token.is(Type::begin_object)) return tl::unexpected(unexpected_token("an object", token));
        state_ = State::top;
        return {};
      case State::top: return take_top(token);
      case State::tensors: return take_tensors(token);
      case State::tensor:
      case State::numbers: {
        Result<void> taken = state_ == State::tensor ? take_tensor(token) : take_number(token);
        if (taken) return taken;
        return tl::unexpected(std::move(taken).error().within(place()));
      }
      case State::metadata: return take_metadata(token);
      case State::tree:
        BITSNAP_TRY(tree_.take(token));
        if (tree_.is_complete()) state_ = State::top;
        return {};
    }
    return {};
  }

  // To be called once the JSON has ended.
  Result<Content> finish() {
    if (!has_tensors_) return fail(ErrorKind::corrupt, "key 'tensors' is missing");
    BITSNAP_TRY(check_names());
    BITSNAP_TRY(check_pool());
    if (tree_.is_complete()) {
      BITSNAP_TRY(check_references());
      content_.tree = tree_.take_value();
    }
    return std::move(content_);
  }

 private:
  enum class State : std::uint8_t { before, top, tensors, tensor, numbers, metadata, tree };

  Result<void> take_top(JsonToken& token) {
    if (token.is(Type::end_object)) return {};
    if (token.is(Type::key)) {
      key_ = std::move(token.text);
      if (key_ == "tensors" || key_ == "pool" || key_ == "metadata" || key_ == "tree") return {};
      return unknown_key();
    }
    if (key_ == "tensors") {
      if (!token.is(Type::begin_array)) return tl::unexpected(unexpected_token("an array as 'tensors'", token));
      has_tensors_ = true;
      state_ = State::tensors;
      return {};
    }
    if (key_ == "pool") {
      if (!token.is_unsigned()) return tl::unexpected(unexpected_token("a size as 'pool'", token));
      if (token.magnitude == 0) return fail(ErrorKind::corrupt, "'pool' is 0, expected at least 1");
      if (token.magnitude > limits_.tensor_bytes) return too_large("pool", token.magnitude);
      content_.pool_bytes = token.magnitude;
      return {};
    }
    if (key_ == "metadata") {
      if (!token.is(Type::begin_object)) return tl::unexpected(unexpected_token("an object as 'metadata'", token));
      state_ = State::metadata;
      return {};
    }
    BITSNAP_TRY(tree_.take(token));
    if (!tree_.is_complete()) state_ = State::tree;
    return {};
  }

  Result<void> take_metadata(JsonToken& token) {
    if (token.is(Type::end_object)) {
      state_ = State::top;
    } else if (token.is(Type::key)) {
      key_ = std::move(token.text);
    } else if (token.is(Type::string)) {
      content_.metadata.emplace_back(std::move(key_), std::move(token.text));
    } else {
      return tl::unexpected(unexpected_token("a string", token).within("metadata " + quote_name(key_)));
    }
    return {};
  }

  Result<void> take_tensors(JsonToken& token) {
    if (token.is(Type::end_array)) {
      state_ = State::top;
      return {};
    }
    if (!token.is(Type::begin_object)) return tl::unexpected(unexpected_token("a tensor's entry", token));
    if (content_.tensors.size() >= limits_.tensors) {
      return fail(ErrorKind::resource_exhausted, fmt::format("more tensors than the limit of {}", limits_.tensors));
    }
    entry_ = Entry();
    state_ = State::tensor;
    return {};
  }

  Result<void> take_tensor(JsonToken& token) {
    if (token.is(Type::end_object)) {
      BITSNAP_TRY(finish_tensor());
      state_ = State::tensors;
      return {};
    }
    if (token.is(Type::key)) {
      key_ = std::move(token.text);
      text_ = text_field();
      number_ = number_field();
      list_ = list_field();
      return text_ != nullptr || number_ != nullptr || list_ != nullptr ? Result<void>() : unknown_key();
    }
    if (text_ != nullptr) {
      if (!token.is(Type::string)) return tl::unexpected(unexpected_token("a string as " + quote_name(key_), token));
      *text_ = std::move(token.text);
      return {};
    }
    if (number_ != nullptr) {
      if (!token.is_unsigned())
        return tl::unexpected(unexpected_token("an unsigned integer as " + quote_name(key_), token));
      *number_ = token.magnitude;
      return {};
    }
    if (!token.is(Type::begin_array) || list_ == nullptr) {
      return tl::unexpected(unexpected_token("an array as " + quote_name(key_), token));
    }
    numbers_ = &list_->emplace();
    state_ = State::numbers;
    return {};
  }

  Result<void> take_number(JsonToken& token) {
    if (token.is(Type::end_array)) {
      state_ = State::tensor;
      return {};
    }
    if (!token.is_unsigned())
      return tl::unexpected(unexpected_token("an unsigned integer in " + quote_name(key_), token));
    if (numbers_->size() >= limits_.rank) {
      return fail(ErrorKind::resource_exhausted, fmt::format("more dimensions than the limit of {}", limits_.rank));
    }
    numbers_->push_back(token.magnitude);
    return {};
  }

  Result<void> finish_tensor() {
    if (!entry_.name) return missing("name");
    if (!entry_.dtype) return missing("dtype");
    if (!entry_.shape) return missing("shape");
    if (!entry_.role) return missing("role");
    if (entry_.name->size() > limits_.name_bytes) {
      return fail(ErrorKind::resource_exhausted,
                  fmt::format("a name of {} bytes is beyond the limit of {}", entry_.name->size(), limits_.name_bytes));
    }
    TensorInfo info;
    info.dtype = dtype_from_name(*entry_.dtype);
    const std::optional<Role> role = role_from_name(*entry_.role);
    if (!role) return fail(ErrorKind::corrupt, fmt::format("role {} is not known", quote_name(*entry_.role)));
    info.role = *role;
    Result<std::uint64_t> size = shape_size_bytes(info.dtype, *entry_.shape);
    if (!size) return fail(ErrorKind::corrupt, std::move(size).error().message());
    info.size_bytes = *size;
    if (info.dtype == DType::opaque) {
      if (!entry_.bytes) return fail(ErrorKind::corrupt, "an opaque dtype without 'bytes'");
      info.size_bytes = *entry_.bytes;
    } else if (entry_.bytes) {
      return fail(ErrorKind::corrupt, "'bytes' beside a known dtype");
    }
    if (info.size_bytes > limits_.tensor_bytes) return too_large("a tensor", info.size_bytes);
    BITSNAP_TRY(check_shard());
    if (entry_.global_shape) info.shard = ShardBox{std::move(*entry_.global_shape), std::move(*entry_.offset)};
    BITSNAP_TRY(check_place(info));
    if (entry_.alias) info.alias_of = static_cast<std::size_t>(*entry_.alias);
    info.name = std::move(*entry_.name);
    info.dtype_name = std::move(*entry_.dtype);
    info.shape = std::move(*entry_.shape);
    content_.tensors.push_back(std::move(info));
    content_.pool_offsets.push_back(entry_.pool);
    return {};
  }

  Result<void> check_shard() const {
    if (entry_.global_shape.has_value() != entry_.offset.has_value()) {
      return fail(ErrorKind::corrupt, "'global_shape' and 'offset' stand only together");
    }
    if (!entry_.global_shape) return {};
    const std::size_t rank = entry_.shape->size();
    if (entry_.global_shape->size() != rank || entry_.offset->size() != rank) {
      return fail(ErrorKind::corrupt, fmt::format("'shape', 'global_shape' and 'offset' have {}, {} and {} numbers",
                                                  rank, entry_.global_shape->size(), entry_.offset->size()));
    }
    for (std::size_t i = 0; i < rank; ++i) {
      const auto end = checked_add((*entry_.offset)[i], (*entry_.shape)[i]);
      if (!end || *end > (*entry_.global_shape)[i]) {
        return fail(ErrorKind::corrupt,
                    fmt::format("dimension {}: {} elements at {} leave a global shape of {}", i, (*entry_.shape)[i],
                                (*entry_.offset)[i], (*entry_.global_shape)[i]));
      }
    }
    return {};
  }

  Result<void> check_place(const TensorInfo& info) const {
    if (info.size_bytes == 0 && (entry_.alias || entry_.pool)) {
      return fail(ErrorKind::corrupt, "an empty tensor with 'alias' or 'pool'");
    }
    if (entry_.alias && entry_.pool) return fail(ErrorKind::corrupt, "'alias' and 'pool' stand together");
    if (!entry_.alias) return {};
    if (*entry_.alias >= content_.tensors.size()) {
      return fail(ErrorKind::corrupt, fmt::format("'alias' is {}, expected an earlier tensor", *entry_.alias));
    }
    const TensorInfo& target = content_.tensors[static_cast<std::size_t>(*entry_.alias)];
    if (target.alias_of) return fail(ErrorKind::corrupt, fmt::format("'alias' {} is an alias itself", *entry_.alias));
    if (target.size_bytes != info.size_bytes) {
      return fail(ErrorKind::corrupt, fmt::format("{} bytes, but the tensor that 'alias' names has {}", info.size_bytes,
                                                  target.size_bytes));
    }
    return {};
  }

  Result<void> check_names() const {
    const std::vector<TensorInfo>& tensors = content_.tensors;
    std::vector<std::size_t> order(tensors.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::sort(order.begin(), order.end(),
              [&](std::size_t a, std::size_t b) { return tensors[a].name < tensors[b].name; });
    for (std::size_t i = 1; i < order.size(); ++i) {
      if (tensors[order[i]].name == tensors[order[i - 1]].name) {
        return fail(ErrorKind::corrupt, fmt::format("two tensors are called {}", quote_name(tensors[order[i]].name)));
      }
    }
    return {};
  }

  Result<void> check_pool() const {
    for (std::size_t i = 0; i < content_.tensors.size(); ++i) {
      const std::optional<std::uint64_t>& offset = content_.pool_offsets[i];
      if (!offset) continue;
      const TensorInfo& info = content_.tensors[i];
      const auto end = checked_add(*offset, info.size_bytes);
      if (!end || *end > content_.pool_bytes) {
        return fail(ErrorKind::corrupt,
                    fmt::format("tensor {}: {} bytes at {} of the pool, which has {}", quote_name(info.name),
                                info.size_bytes, *offset, content_.pool_bytes));
      }
    }
    return {};
  }

  Result<void> check_references() const {
    for (const ValueTensor& reference : tree_.references()) {
      if (reference.index >= content_.tensors.size()) {
        return fail(ErrorKind::corrupt,
                    fmt::format("tree: refers to tensor {} of {}", reference.index, content_.tensors.size()));
      }
      const TensorInfo& info = content_.tensors[reference.index];
      if (reference.kind == ValueTensor::Kind::scalar && !info.shape.empty()) {
        return fail(ErrorKind::corrupt, fmt::format("tree: tensor {} is a scalar with {} dimensions, expected none",
                                                    quote_name(info.name), info.shape.size()));
      }
    }
    return {};
  }

  [[nodiscard]] std::optional<std::string>* text_field() {
    return key_ == "name" ? &entry_.name : key_ == "dtype" ? &entry_.dtype : key_ == "role" ? &entry_.role : nullptr;
  }

  [[nodiscard]] std::optional<std::uint64_t>* number_field() {
    return key_ == "alias" ? &entry_.alias : key_ == "pool" ? &entry_.pool : key_ == "bytes" ? &entry_.bytes : nullptr;
  }

  [[nodiscard]] std::optional<std::vector<std::uint64_t>>* list_field() {
    return key_ == "shape"          ? &entry_.shape
           : key_ == "global_shape" ? &entry_.global_shape
           : key_ == "offset"       ? &entry_.offset
                                    : nullptr;
  }

  [[nodiscard]] std::string place() const {
    std::string text = fmt::format("tensor {}", content_.tensors.size());
    if (entry_.name) text += " " + quote_name(*entry_.name);
    return text;
  }

  [[nodiscard]] Result<void> unknown_key() const {
    return fail(ErrorKind::unsupported, fmt::format("key {} is not known to this reader", quote_name(key_)));
  }

  [[nodiscard]] static Result<void> missing(std::string_view key) {
    return fail(ErrorKind::corrupt, fmt::format("key '{}' is missing", key));
  }

  [[nodiscard]] Result<void> too_large(std::string_view what, std::uint64_t size) const {
    return fail(ErrorKind::resource_exhausted,
                fmt::format("{} of {} bytes is beyond the limit of {}", what, size, limits_.tensor_bytes));
  }

  const DecodeLimits& limits_;
  ValueReader tree_;
  State state_ = State::before;
  std::string key_;
  Entry entry_;
  // Where the value of key_ goes: one of them.
  std::optional<std::string>* text_ = nullptr;
  std::optional<std::uint64_t>* number_ = nullptr;
  std::optional<std::vector<std::uint64_t>>* list_ = nullptr;
  std::vector<std::uint64_t>* numbers_ = nullptr;  // the list that is open
  bool has_tensors_ = false;
  Content content_;
};

}  // namespace

Result<Content> parse_content(std::string_view json, const DecodeLimits& limits) {
  return no_throw("content", [&]() -> Result<Content> {
    ContentSink sink(limits);
    Result<void> read = read_json(json, sink);
    Result<Content> content = read ? sink.finish() : tl::unexpected(std::move(read).error());
    if (content) return content;
    return tl::unexpected(std::move(content).error().within("content"));
  });
}

}  // namespace bitsnap::container
