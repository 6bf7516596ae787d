// Reads the header and compares the size that it implies with the size of the file.
#include "interop/npy/npy.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "base/bytes.hpp"
#include "base/try.hpp"
#include "interop/npy/npy_header.hpp"

namespace bitsnap::interop {
namespace {

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
