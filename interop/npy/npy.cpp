// Of one array, reads the header and compares the size that it implies with the size of the file. Of an archive, reads
// the directory and the header of each array.
#include "interop/npy/npy.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/bytes.hpp"
#include "base/checked.hpp"
#include "base/try.hpp"
#include "base/utf8.hpp"
#include "interop/zip/zip_directory.hpp"

namespace bitsnap::interop {
namespace {

constexpr std::string_view kNpySuffix = ".npy";

// A snapshot holds tensors with names of UTF-8 only.
bool is_tensor_name(std::string_view name, const DecodeLimits& limits) {
  return !name.empty() && name.size() <= limits.name_bytes && is_utf8(name);
}

void add_array(Contents& to, Contents&& array, std::string_view name, std::uint64_t offset) {
  for (FoundTensor& tensor : array.tensors) {
    tensor.info.name = name;
    tensor.info.role = guess_role(name, tensor.info.dtype);
    tensor.offset += offset;
    to.tensors.push_back(std::move(tensor));
  }
  for (TensorView& view : array.views) {
    view.name = name;
    view.offset += offset;
    to.views.push_back(std::move(view));
  }
}

}  // namespace

Result<Contents> read_npz(const FileBytes& bytes, const DecodeLimits& limits) {
  BITSNAP_ASSIGN(const std::vector<ZipEntry> entries, read_zip_directory(bytes, limits));
  Contents contents;
  for (const ZipEntry& entry : entries) {
    std::string_view name = entry.name;
    if (!entry.is_stored || !name.ends_with(kNpySuffix)) continue;
    name.remove_suffix(kNpySuffix.size());
    if (!is_tensor_name(name, limits)) continue;
    if (contents.tensors.size() >= limits.tensors) {
      return fail(ErrorKind::resource_exhausted, fmt::format("more than {} arrays", limits.tensors));
    }
    BITSNAP_ASSIGN(const FileBytes part, bytes.part(entry.offset, entry.bytes));
    Result<Contents> array = read_npy(part, limits);
    if (array) {
      add_array(contents, std::move(*array), name, entry.offset);
    } else if (!is_fault_of_bytes(array.error().kind())) {
      return tl::unexpected(std::move(array).error().within(entry.name));
    }
  }
  return contents;
}

namespace {

// The header of a .npy file: a Python literal that names the element type and the shape. It is parsed as exactly the
// literal that numpy writes, and never evaluated, by a recursive parser whose depth is bounded by `limits.tree_depth`.
struct NpyHeader {
  std::string type;  // as numpy names it: "<f4"; "|V24" for a structured type of 24 bytes
  std::uint64_t element_bytes = 0;
  bool is_fortran_order = false;
  std::vector<std::uint64_t> shape;
  std::uint64_t size_bytes = 0;  // of the array; below 2^63
};

constexpr std::uint64_t kMostNpyBytes = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());

std::optional<std::uint64_t> npy_product(std::uint64_t a, std::uint64_t b) {
  const auto product = checked_multiply(a, b);
  return product && *product <= kMostNpyBytes ? product : std::nullopt;
}

class NpyHeaderParser {
 public:
  NpyHeaderParser(std::string_view text, const DecodeLimits& limits) : text_(text), limits_(limits) {}

  Result<NpyHeader> read() {
    BITSNAP_TRY(expect('{'));
    while (!take('}')) {
      BITSNAP_TRY(read_member());
      if (take(',')) continue;
      BITSNAP_TRY(expect('}'));
      break;
    }
    skip_space();
    if (at_ != text_.size()) return bad("expected the end of the header");
    if (!has_type_ || !has_order_ || !has_shape_) return bad("expected the keys 'descr', 'fortran_order' and 'shape'");
    if (std::ranges::find(header_.shape, 0U) != header_.shape.end()) return std::move(header_);
    std::optional<std::uint64_t> bytes = header_.element_bytes;
    for (const std::uint64_t extent : header_.shape) {
      bytes = npy_product(*bytes, extent);
      if (!bytes) return bad("the array has more than 2^63 - 1 bytes");
    }
    header_.size_bytes = *bytes;
    return std::move(header_);
  }

 private:
  [[nodiscard]] tl::unexpected<Error> bad(std::string_view what) const {
    return fail(ErrorKind::corrupt, fmt::format(".npy header, character {}: {}", at_, what));
  }

  void skip_space() {
    while (at_ < text_.size() && std::string_view(" \t\n\r").find(text_[at_]) != std::string_view::npos) ++at_;
  }

  bool take(char character) {
    skip_space();
    if (at_ == text_.size() || text_[at_] != character) return false;
    ++at_;
    return true;
  }

  Result<void> expect(char character) {
    if (take(character)) return {};
    return bad(fmt::format("expected '{}'", character));
  }

  Result<void> read_member() {
    BITSNAP_ASSIGN(const std::string_view key, read_string());
    BITSNAP_TRY(expect(':'));
    bool* has = nullptr;
    if (key == "descr") has = &has_type_;
    if (key == "fortran_order") has = &has_order_;
    if (key == "shape") has = &has_shape_;
    if (has == nullptr || *has) return bad("a key is unknown, or there twice");
    *has = true;
    if (has == &has_shape_) {
      BITSNAP_ASSIGN(header_.shape, read_shape());
    } else if (has == &has_order_) {
      BITSNAP_ASSIGN(header_.is_fortran_order, read_boolean());
    } else {
      BITSNAP_TRY(read_array_type());
    }
    return {};
  }

  // The text between the quotes, with its escapes as they are.
  Result<std::string_view> read_string() {
    skip_space();
    if (at_ == text_.size() || (text_[at_] != '\'' && text_[at_] != '"')) return bad("expected a string");
    const char quote = text_[at_++];
    const std::size_t begin = at_;
    while (at_ < text_.size() && text_[at_] != quote && text_[at_] != '\n') at_ += text_[at_] == '\\' ? 2U : 1U;
    if (at_ >= text_.size() || text_[at_] != quote) {
      at_ = begin;
      return bad("expected the end of this string");
    }
    return text_.substr(begin, at_++ - begin);
  }

  Result<bool> read_boolean() {
    skip_space();
    for (const auto& [word, value] : {std::pair<std::string_view, bool>{"True", true}, {"False", false}}) {
      if (!text_.substr(at_).starts_with(word)) continue;
      at_ += word.size();
      return value;
    }
    return bad("expected True or False");
  }

  // A tuple of integers: "()", "(3,)", "(3, 4)".
  Result<std::vector<std::uint64_t>> read_shape() {
    std::vector<std::uint64_t> shape;
    BITSNAP_TRY(expect('('));
    bool has_comma = true;
    while (!take(')')) {
      if (!has_comma) return bad("expected ',' or ')'");
      if (shape.size() >= limits_.dimensions) return bad(fmt::format("more than {} dimensions", limits_.dimensions));
      std::uint64_t extent = 0;
      const char* begin = text_.data() + at_;
      const auto [end, error] = std::from_chars(begin, text_.data() + text_.size(), extent);
      if (error != std::errc() || extent > kMostNpyBytes) return bad("expected a number below 2^63");
      at_ += static_cast<std::size_t>(end - begin);
      if (at_ < text_.size() && text_[at_] == 'L') ++at_;  // Python 2
      shape.push_back(extent);
      has_comma = take(',');
      skip_space();
    }
    if (shape.size() == 1 && !has_comma) return bad("expected a tuple");
    return shape;
  }

  Result<void> read_array_type() {
    skip_space();
    if (at_ < text_.size() && text_[at_] == '[') {
      BITSNAP_ASSIGN(header_.element_bytes, read_fields_bytes(1));
      header_.type = fmt::format("|V{}", header_.element_bytes);
      return {};
    }
    BITSNAP_ASSIGN(const std::string_view type, read_string());
    BITSNAP_ASSIGN(header_.element_bytes, type_bytes(type));
    header_.type = type;
    return {};
  }

  // The size of a structured type: a list of (name, type) or (name, type, shape), without gaps between the fields.
  Result<std::uint64_t> read_fields_bytes(std::uint32_t depth) {
    if (depth > limits_.tree_depth) return bad(fmt::format("types are nested more than {} deep", limits_.tree_depth));
    BITSNAP_TRY(expect('['));
    std::uint64_t sum = 0;
    while (!take(']')) {
      BITSNAP_ASSIGN(const std::uint64_t bytes, read_field_bytes(depth));
      sum += bytes;
      if (sum > kMostNpyBytes) return bad("the type has more than 2^63 - 1 bytes");
      if (take(',')) continue;
      BITSNAP_TRY(expect(']'));
      break;
    }
    return sum;
  }

  Result<std::uint64_t> read_field_bytes(std::uint32_t depth) {
    BITSNAP_TRY(expect('('));
    BITSNAP_TRY(read_field_name());
    BITSNAP_TRY(expect(','));
    skip_space();
    std::optional<std::uint64_t> bytes;
    if (at_ < text_.size() && text_[at_] == '[') {
      BITSNAP_ASSIGN(bytes, read_fields_bytes(depth + 1));
    } else {
      BITSNAP_ASSIGN(const std::string_view type, read_string());
      BITSNAP_ASSIGN(bytes, type_bytes(type));
    }
    if (take(')')) return *bytes;
    BITSNAP_TRY(expect(','));
    if (take(')')) return *bytes;
    BITSNAP_ASSIGN(const std::vector<std::uint64_t> shape, read_shape());
    for (const std::uint64_t extent : shape) {
      bytes = npy_product(*bytes, extent);
      if (!bytes) return bad("a field has more than 2^63 - 1 bytes");
    }
    take(',');
    BITSNAP_TRY(expect(')'));
    return *bytes;
  }

  // A name, or a title and a name.
  Result<void> read_field_name() {
    const bool has_title = take('(');
    BITSNAP_TRY(read_string());
    if (!has_title) return {};
    BITSNAP_TRY(expect(','));
    BITSNAP_TRY(read_string());
    return expect(')');
  }

  // The size of an element: "<f4" has 4 bytes, "<U3" has 3 characters of 4 bytes, "<M8[25ns]" has 8 bytes.
  [[nodiscard]] Result<std::uint64_t> type_bytes(std::string_view type) const {
    if (type == "|O") return fail(ErrorKind::unsupported, "the elements of the .npy file are Python objects");
    constexpr std::string_view kOrders = "<>|";
    constexpr std::string_view kLetters = "biufcmMSUVa";
    if (type.size() < 3 || kOrders.find(type[0]) == std::string_view::npos ||
        kLetters.find(type[1]) == std::string_view::npos) {
      return bad("an element type is unknown");
    }
    std::uint64_t number = 0;
    const char* last = type.data() + type.size();
    const auto [end, error] = std::from_chars(type.data() + 2, last, number);
    if (error != std::errc()) return bad("an element type has no size");
    const std::string_view unit(end, static_cast<std::size_t>(last - end));
    if (!unit.empty() && !((type[1] == 'm' || type[1] == 'M') && is_time_unit(unit))) {
      return bad("an element type is unknown");
    }
    const auto bytes = npy_product(number, type[1] == 'U' ? 4 : 1);
    if (!bytes) return bad("an element type has more than 2^63 - 1 bytes");
    return *bytes;
  }

  static bool is_time_unit(std::string_view text) {
    return text.size() > 2 && text.front() == '[' && text.back() == ']' &&
           std::ranges::all_of(text.substr(1, text.size() - 2), [](char c) {
             return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '/';
           });
  }

  std::string_view text_;
  const DecodeLimits& limits_;
  std::size_t at_ = 0;
  NpyHeader header_;
  bool has_type_ = false;
  bool has_order_ = false;
  bool has_shape_ = false;
};

// corrupt unless `text` is one such literal, followed by white space only; unsupported if elements are Python objects.
Result<NpyHeader> parse_npy_header(std::string_view text, const DecodeLimits& limits) {
  return NpyHeaderParser(text, limits).read();
}

constexpr std::string_view kNpyMagic = "\x93NUMPY";
// numpy itself reads at most 10,000 characters from files that it does not trust.
constexpr std::uint64_t kMostNpyHeaderBytes = std::uint64_t{1} << 20;
constexpr const char* kNpyTensorName = "array";

struct PlacedNpyHeader {
  NpyHeader header;
  std::uint64_t data_offset = 0;
};

Result<PlacedNpyHeader> read_npy_header(const FileBytes& bytes, const DecodeLimits& limits) {
  // Magic, version, and the size of the header in 2 or 4 bytes.
  std::array<std::byte, 12> start{};
  const auto available = static_cast<std::size_t>(std::min<std::uint64_t>(start.size(), bytes.size()));
  BITSNAP_TRY(bytes.read_at(0, ByteSpan(start).first(available)));
  if (!kNpyMagic.starts_with(as_text(start).substr(0, std::min(available, kNpyMagic.size())))) {
    return fail(ErrorKind::corrupt, "not a .npy file: it does not begin with \"\\x93NUMPY\"");
  }
  if (available < start.size()) {
    return fail(ErrorKind::truncated, fmt::format("a .npy file has more than {} bytes", available));
  }
  const auto major = std::to_integer<unsigned>(start[6]);
  const auto minor = std::to_integer<unsigned>(start[7]);
  if (major < 1 || major > 3 || minor != 0) {
    return fail(ErrorKind::unsupported,
                fmt::format(".npy version {}.{}; versions 1.0, 2.0 and 3.0 are known", major, minor));
  }
  const std::uint64_t header_offset = major == 1 ? 10 : 12;
  const std::uint64_t header_bytes =
      major == 1 ? load_le<std::uint16_t>(start.data() + 8) : load_le<std::uint32_t>(start.data() + 8);
  if (header_bytes > kMostNpyHeaderBytes) {
    return fail(ErrorKind::corrupt,
                fmt::format("the .npy header has {} bytes, the limit is {} bytes", header_bytes, kMostNpyHeaderBytes));
  }
  BITSNAP_ASSIGN(const std::string text, bytes.read_text(header_offset, header_bytes));
  BITSNAP_ASSIGN(NpyHeader header, parse_npy_header(text, limits));
  return PlacedNpyHeader{.header = std::move(header), .data_offset = header_offset + header_bytes};
}

// DType::opaque for big-endian elements and for types that bitsnap does not know.
DType dtype_of_npy(std::string_view type) {
  if (type.starts_with('>') && !type.ends_with('1')) return DType::opaque;
  static constexpr std::array<std::pair<std::string_view, DType>, 13> kTypes = {{{"b1", DType::boolean},
                                                                                 {"u1", DType::u8},
                                                                                 {"i1", DType::i8},
                                                                                 {"u2", DType::u16},
                                                                                 {"i2", DType::i16},
                                                                                 {"u4", DType::u32},
                                                                                 {"i4", DType::i32},
                                                                                 {"u8", DType::u64},
                                                                                 {"i8", DType::i64},
                                                                                 {"f2", DType::f16},
                                                                                 {"f4", DType::f32},
                                                                                 {"f8", DType::f64},
                                                                                 {"c8", DType::c64}}};
  const auto found = std::ranges::find(kTypes, type.substr(1), &std::pair<std::string_view, DType>::first);
  return found != kTypes.end() ? found->second : DType::opaque;
}

// In both orders the same bytes if at most one dimension has more than one element.
bool npy_order_matters(const NpyHeader& header) {
  return header.is_fortran_order && std::ranges::count_if(header.shape, [](std::uint64_t n) { return n != 1; }) > 1;
}

}  // namespace

bool looks_like_npy(std::string_view start) noexcept { return start.starts_with(kNpyMagic); }

Result<Contents> read_npy(const FileBytes& bytes, const DecodeLimits& limits) {
  BITSNAP_ASSIGN(PlacedNpyHeader placed, read_npy_header(bytes, limits));
  NpyHeader& header = placed.header;
  const std::uint64_t size_bytes = header.size_bytes;
  const std::uint64_t available = bytes.size() - placed.data_offset;
  if (size_bytes != available) {
    return fail(size_bytes > available ? ErrorKind::truncated : ErrorKind::corrupt,
                fmt::format("the .npy header describes {} bytes of data, {} bytes follow it", size_bytes, available));
  }
  Contents contents;
  if (size_bytes == 0) return contents;
  FoundTensor found;
  found.offset = placed.data_offset;
  TensorInfo& info = found.info;
  info.name = kNpyTensorName;
  info.dtype = dtype_of_npy(header.type);
  info.dtype_name = info.dtype == DType::opaque ? header.type : std::string(dtype_name(info.dtype));
  info.size_bytes = size_bytes;
  info.role = guess_role(info.name, info.dtype);
  if (npy_order_matters(header)) {
    TensorView view{.name = info.name,
                    .dtype_name = info.dtype_name,
                    .shape = header.shape,
                    .stride = {},
                    .offset = found.offset,
                    .element_bytes = header.element_bytes};
    std::uint64_t stride = 1;
    for (const std::uint64_t extent : header.shape) {
      view.stride.push_back(stride);
      stride *= extent;
    }
    info.shape = {stride};
    contents.views.push_back(std::move(view));
  } else {
    info.shape = std::move(header.shape);
  }
  contents.tensors.push_back(std::move(found));
  return contents;
}

}  // namespace bitsnap::interop
