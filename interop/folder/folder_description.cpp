// Writing and reading the description of a folder.
#include "interop/folder/folder_description.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "base/checked.hpp"
#include "base/quote_name.hpp"
#include "base/try.hpp"
#include "base/utf8.hpp"
#include "interop/container/strided_span.hpp"
#include "os/plain_name.hpp"

namespace bitsnap::interop {
namespace {

constexpr std::int64_t kDescriptionVersion = 0;
constexpr std::uint32_t kMostMode = 07777;
constexpr std::array kEntryKinds{EntryKind::file, EntryKind::directory, EntryKind::symbolic_link, EntryKind::hard_link};

// Writing.

Value text_value(const std::string& text) {
  return is_utf8(text) ? Value(Value::Variant(text)) : Value(Value::Variant(ValueBytes{text}));
}

Value number_value(std::uint64_t number) {
  if (number <= INT64_MAX) return Value(Value::Variant(static_cast<std::int64_t>(number)));
  return Value(Value::Variant(ValueBigInt{std::to_string(number)}));
}

Value tensor_value(std::size_t index) { return Value(Value::Variant(ValueTensor{.index = index})); }

class DictWriter {
 public:
  void add(std::string_view key, Value value) {
    dict_.entries.emplace_back(Value(Value::Variant(std::string(key))), std::move(value));
  }
  void add_text(std::string_view key, const std::string& text) {
    if (!text.empty()) add(key, text_value(text));
  }
  template <typename Items, typename Make>
  void add_list(std::string_view key, const Items& items, const Make& make) {
    if (items.empty()) return;
    ValueList list;
    list.reserve(items.size());
    for (const auto& item : items) list.push_back(make(item));
    add(key, Value(Value::Variant(std::move(list))));
  }
  Value take() { return Value(Value::Variant(std::move(dict_))); }

 private:
  ValueDict dict_;
};

Value view_value(const FileView& view) {
  DictWriter dict;
  dict.add_text("name", view.tensor.name);
  dict.add("dtype", text_value(view.tensor.dtype_name));
  if (view.tensor.dtype == DType::opaque) dict.add("element_bytes", number_value(view.tensor.element_bytes));
  dict.add_list("shape", view.tensor.shape, number_value);
  dict.add_list("stride", view.tensor.stride, number_value);
  dict.add("piece", number_value(view.piece));
  dict.add("offset", number_value(view.offset));
  return dict.take();
}

Value entry_value(const DescribedEntry& described) {
  const FolderEntry& entry = described.entry;
  const FileParts& parts = described.parts;
  DictWriter dict;
  dict.add_text("path", entry.path);
  dict.add("kind", text_value(std::string(entry_kind_name(entry.kind))));
  if (entry.kind == EntryKind::hard_link) {
    dict.add_text("target", entry.target);
    return dict.take();
  }
  dict.add("mode", number_value(entry.mode));
  dict.add("modified_ns", Value(Value::Variant(entry.modified_ns)));
  dict.add_text("target", entry.target);
  if (entry.kind != EntryKind::file) return dict.take();
  dict.add("size", number_value(entry.size_bytes));
  dict.add_text("container", entry.container);
  dict.add_text("note", entry.note);
  dict.add_text("name", parts.name);
  if (parts.rest) dict.add("rest", tensor_value(*parts.rest));
  dict.add_list("tensors", parts.pieces, [](const FilePiece& piece) { return tensor_value(piece.tensor); });
  dict.add_list("offsets", parts.pieces, [](const FilePiece& piece) { return number_value(piece.offset); });
  dict.add_list("views", parts.views, view_value);
  return dict.take();
}

// Reading. All functions return corrupt for what the specification does not allow.

tl::unexpected<Error> wrong(std::string message) { return fail(ErrorKind::corrupt, std::move(message)); }

class DictReader {
 public:
  static Result<DictReader> of(const Value& value) {
    const auto* dict = std::get_if<ValueDict>(&value.get());
    if (dict == nullptr) return wrong("expected a dict");
    return DictReader(*dict);
  }

  [[nodiscard]] const Value* find(std::string_view key) const {
    for (const auto& [name, value] : dict_->entries) {
      const auto* text = std::get_if<std::string>(&name.get());
      if (text != nullptr && *text == key) return &value;
    }
    return nullptr;
  }
  [[nodiscard]] Result<std::string> text(std::string_view key) const {
    const Value* value = find(key);
    if (value == nullptr) return std::string();
    if (const auto* text = std::get_if<std::string>(&value->get())) return *text;
    if (const auto* bytes = std::get_if<ValueBytes>(&value->get())) return bytes->bytes;
    return wrong(fmt::format("'{}' must be a string or bytes", key));
  }
  [[nodiscard]] Result<std::uint64_t> number(std::string_view key) const {
    const Value* value = find(key);
    return value == nullptr ? Result<std::uint64_t>(0) : number_of(key, *value);
  }
  [[nodiscard]] Result<std::int64_t> integer(std::string_view key) const {
    const Value* value = find(key);
    const auto* integer = value == nullptr ? nullptr : std::get_if<std::int64_t>(&value->get());
    if (integer == nullptr) return wrong(fmt::format("'{}' must be an integer of 64 bits", key));
    return *integer;
  }
  [[nodiscard]] Result<std::span<const Value>> list(std::string_view key) const {
    const Value* value = find(key);
    if (value == nullptr) return std::span<const Value>();
    const auto* list = std::get_if<ValueList>(&value->get());
    if (list == nullptr) return wrong(fmt::format("'{}' must be a list", key));
    return std::span<const Value>(*list);
  }
  [[nodiscard]] Result<std::vector<std::uint64_t>> numbers(std::string_view key) const {
    BITSNAP_ASSIGN(const std::span<const Value> values, list(key));
    std::vector<std::uint64_t> numbers;
    numbers.reserve(values.size());
    for (const Value& value : values) {
      BITSNAP_ASSIGN(const std::uint64_t number, number_of(key, value));
      numbers.push_back(number);
    }
    return numbers;
  }

 private:
  explicit DictReader(const ValueDict& dict) : dict_(&dict) {}

  static Result<std::uint64_t> number_of(std::string_view key, const Value& value) {
    const auto* integer = std::get_if<std::int64_t>(&value.get());
    if (integer == nullptr || *integer < 0) return wrong(fmt::format("'{}' must hold numbers from 0 to 2^63 - 1", key));
    return static_cast<std::uint64_t>(*integer);
  }

  const ValueDict* dict_;
};

Result<EntryKind> kind_named(std::string_view name) {
  for (const EntryKind kind : kEntryKinds) {
    if (entry_kind_name(kind) == name) return kind;
  }
  return wrong(fmt::format("the kind must be file, directory, symlink or hardlink, got {}", quote_name(name)));
}

// Where the bytes of files may come from: each tensor once, in the order of the files.
class TensorOrder {
 public:
  explicit TensorOrder(std::span<const TensorInfo> tensors) : tensors_(tensors) {}

  Result<std::size_t> take(const Value& value) {
    const auto* tensor = std::get_if<ValueTensor>(&value.get());
    if (tensor == nullptr) return wrong("expected a tensor");
    if (tensor->index >= tensors_.size() || tensor->index < next_) {
      return wrong(fmt::format("tensor {} is out of order", tensor->index));
    }
    if (tensors_[tensor->index].alias_of) return wrong(fmt::format("tensor {} is an alias", tensor->index));
    next_ = tensor->index + 1;
    return tensor->index;
  }

 private:
  std::span<const TensorInfo> tensors_;
  std::size_t next_ = 0;
};

Result<FileView> read_view(const Value& value, const FileParts& parts, std::span<const TensorInfo> tensors) {
  BITSNAP_ASSIGN(const DictReader dict, DictReader::of(value));
  FileView view;
  BITSNAP_ASSIGN(view.tensor.name, dict.text("name"));
  BITSNAP_ASSIGN(view.tensor.dtype_name, dict.text("dtype"));
  view.tensor.dtype = dtype_from_name(view.tensor.dtype_name);
  view.tensor.element_bytes = element_size(view.tensor.dtype);
  if (view.tensor.dtype == DType::opaque) {
    BITSNAP_ASSIGN(view.tensor.element_bytes, dict.number("element_bytes"));
  }
  BITSNAP_ASSIGN(view.tensor.shape, dict.numbers("shape"));
  BITSNAP_ASSIGN(view.tensor.stride, dict.numbers("stride"));
  BITSNAP_ASSIGN(view.piece, dict.number("piece"));
  BITSNAP_ASSIGN(view.offset, dict.number("offset"));
  if (view.piece >= parts.pieces.size()) return wrong(fmt::format("there is no piece {}", view.piece));
  if (view.tensor.stride.size() != view.tensor.shape.size()) return wrong("a view needs a stride for each dimension");
  // The last element must lie in the piece.
  const std::uint64_t bytes = tensors[parts.pieces[view.piece].tensor].size_bytes;
  const std::optional<std::uint64_t> elements = strided_span(view.tensor.shape, view.tensor.stride);
  const auto end = elements ? checked_multiply(*elements, view.tensor.element_bytes) : std::nullopt;
  const bool is_within = elements == 0U || (view.tensor.element_bytes > 0 && end && *end <= bytes - view.offset);
  if (view.offset > bytes || !is_within) {
    return wrong(fmt::format("the view {} goes beyond its piece", quote_name(view.tensor.name)));
  }
  return view;
}

Result<FileParts> read_parts(const DictReader& dict, std::uint64_t size, TensorOrder& order,
                             std::span<const TensorInfo> tensors) {
  FileParts parts;
  BITSNAP_ASSIGN(parts.name, dict.text("name"));
  std::uint64_t bytes = 0;
  if (const Value* rest = dict.find("rest")) {
    BITSNAP_ASSIGN(parts.rest, order.take(*rest));
    bytes = tensors[*parts.rest].size_bytes;
  }
  BITSNAP_ASSIGN(const std::span<const Value> listed, dict.list("tensors"));
  BITSNAP_ASSIGN(const std::vector<std::uint64_t> offsets, dict.numbers("offsets"));
  if (listed.size() != offsets.size()) return wrong("'tensors' and 'offsets' must have the same length");
  std::uint64_t end = 0;
  std::uint64_t rest = 0;  // bytes between the pieces so far
  for (std::size_t i = 0; i < listed.size(); ++i) {
    FilePiece piece;
    piece.offset = offsets[i];
    BITSNAP_ASSIGN(piece.tensor, order.take(listed[i]));
    const std::uint64_t piece_bytes = tensors[piece.tensor].size_bytes;
    if (piece.offset < end || piece.offset > size || piece_bytes > size - piece.offset) {
      return wrong(fmt::format("tensor {} overlaps another one, or ends beyond the file", piece.tensor));
    }
    rest += piece.offset - end;
    piece.rest = rest;
    end = piece.offset + piece_bytes;
    bytes += piece_bytes;
    parts.pieces.push_back(piece);
  }
  if (bytes != size) return wrong(fmt::format("the tensors have {} of {} bytes", bytes, size));
  BITSNAP_ASSIGN(const std::span<const Value> views, dict.list("views"));
  for (const Value& value : views) {
    BITSNAP_ASSIGN(FileView view, read_view(value, parts, tensors));
    parts.views.push_back(std::move(view));
  }
  return parts;
}

Result<DescribedEntry> read_entry(const Value& value, TensorOrder& order, std::span<const TensorInfo> tensors) {
  BITSNAP_ASSIGN(const DictReader dict, DictReader::of(value));
  DescribedEntry described;
  FolderEntry& entry = described.entry;
  BITSNAP_ASSIGN(entry.path, dict.text("path"));
  BITSNAP_ASSIGN(const std::string kind, dict.text("kind"));
  BITSNAP_ASSIGN(entry.kind, kind_named(kind));
  BITSNAP_ASSIGN(entry.target, dict.text("target"));
  if (entry.kind == EntryKind::hard_link) return described;
  BITSNAP_ASSIGN(const std::uint64_t mode, dict.number("mode"));
  if (mode > kMostMode) return wrong(fmt::format("the mode must be at most 07777, got 0{:o}", mode));
  entry.mode = static_cast<std::uint32_t>(mode);
  BITSNAP_ASSIGN(entry.modified_ns, dict.integer("modified_ns"));
  if (entry.kind != EntryKind::file) return described;
  BITSNAP_ASSIGN(entry.size_bytes, dict.number("size"));
  BITSNAP_ASSIGN(entry.container, dict.text("container"));
  BITSNAP_ASSIGN(entry.note, dict.text("note"));
  BITSNAP_ASSIGN(described.parts, read_parts(dict, entry.size_bytes, order, tensors));
  return described;
}

Result<void> check_layout(const std::vector<DescribedEntry>& entries) {
  if (entries.empty() || !entries.front().entry.path.empty()) return wrong("the first entry must be the folder itself");
  const EntryKind root = entries.front().entry.kind;
  if (root != EntryKind::directory && (root != EntryKind::file || entries.size() > 1)) {
    return wrong("the first entry must be a directory, or the only file");
  }
  std::map<std::string_view, EntryKind> kinds{{"", root}};
  for (std::size_t i = 1; i < entries.size(); ++i) {
    const FolderEntry& entry = entries[i].entry;
    const std::string_view path = entry.path;
    if (!os::is_plain_path(path)) return wrong(fmt::format("{} is no path below the folder", quote_name(path)));
    if (path <= entries[i - 1].entry.path) return wrong(fmt::format("{} is out of order", quote_name(path)));
    const std::size_t slash = path.rfind('/');
    const auto above = kinds.find(slash == std::string_view::npos ? "" : path.substr(0, slash));
    if (above == kinds.end() || above->second != EntryKind::directory) {
      return wrong(fmt::format("{} lies in no directory of the folder", quote_name(path)));
    }
    kinds.emplace(path, entry.kind);
  }
  for (const DescribedEntry& described : entries) {
    const FolderEntry& entry = described.entry;
    if (entry.target.find('\0') != std::string::npos) return wrong("a link contains a NUL");
    if (entry.kind == EntryKind::symbolic_link && entry.target.empty()) return wrong("a link leads nowhere");
    if (entry.kind != EntryKind::hard_link) continue;
    const auto target = kinds.find(entry.target);
    if (target == kinds.end() || target->second != EntryKind::file) {
      return wrong(fmt::format("the hard link {} leads to no file", quote_name(entry.path)));
    }
  }
  return {};
}

}  // namespace

Value describe_folder(const FolderDescription& folder) {
  DictWriter dict;
  dict.add("version", Value(Value::Variant(kDescriptionVersion)));
  dict.add_text("name", folder.name);
  dict.add_list("entries", folder.entries, entry_value);
  return Value(Value::Variant(ValueTyped{std::string(kFolderType), {dict.take()}}));
}

Result<FolderDescription> parse_folder(const Value& value, std::span<const TensorInfo> tensors) {
  const auto* typed = std::get_if<ValueTyped>(&value.get());
  if (typed == nullptr || typed->type != kFolderType || typed->content.size() != 1) {
    return fail(ErrorKind::invalid_argument, "the snapshot holds no folder");
  }
  BITSNAP_ASSIGN(const DictReader dict, DictReader::of(typed->content.front()));
  BITSNAP_ASSIGN(const std::uint64_t version, dict.number("version"));
  if (version != kDescriptionVersion) {
    return fail(
        ErrorKind::unsupported,
        fmt::format("the folder is described in version {}, which this version of bitsnap does not know", version));
  }
  FolderDescription folder;
  BITSNAP_ASSIGN(folder.name, dict.text("name"));
  BITSNAP_ASSIGN(const std::span<const Value> entries, dict.list("entries"));
  TensorOrder order(tensors);
  folder.entries.reserve(entries.size());
  for (std::size_t i = 0; i < entries.size(); ++i) {
    auto entry = read_entry(entries[i], order, tensors);
    if (!entry) return tl::unexpected(std::move(entry).error().within(fmt::format("entry {} of the folder", i)));
    folder.entries.push_back(*std::move(entry));
  }
  BITSNAP_TRY(check_layout(folder.entries));
  return folder;
}

}  // namespace bitsnap::interop
