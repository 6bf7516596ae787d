// Reads the length and the header; the tensors are not read.
#include "interop/safetensors/safetensors_contents.hpp"

#include <array>
#include <cstddef>
#include <utility>

#include <fmt/format.h>

#include "base/bytes.hpp"
#include "base/try.hpp"

namespace bitsnap::interop {

Result<SafetensorsParts> read_safetensors_parts(const FileBytes& bytes, const DecodeLimits& limits) {
  if (bytes.size() < kLengthBytes) {
    return fail(ErrorKind::truncated,
                fmt::format("the file has {} bytes, expected at least {}: the size of a safetensors header",
                            bytes.size(), kLengthBytes));
  }
  std::array<std::byte, kLengthBytes> length{};
  BITSNAP_TRY(bytes.read_at(0, length));
  const auto header_bytes = load_le<std::uint64_t>(length.data());
  if (header_bytes > kMaxHeaderBytes) {
    return fail(ErrorKind::corrupt,
                fmt::format("not a safetensors file, or damaged: the size of the header, at offset 0, is {} bytes, "
                            "expected at most {} bytes",
                            header_bytes, kMaxHeaderBytes));
  }
  if (header_bytes > bytes.size() - kLengthBytes) {
    return fail(ErrorKind::truncated, fmt::format("the header at offset {} has {} bytes, but the file ends after {}",
                                                  kLengthBytes, header_bytes, bytes.size() - kLengthBytes));
  }
  SafetensorsParts parts;
  BITSNAP_ASSIGN(parts.text, bytes.read_text(kLengthBytes, header_bytes));
  parts.data_offset = kLengthBytes + header_bytes;
  BITSNAP_ASSIGN(parts.header, parse_safetensors_header(parts.text, bytes.size() - parts.data_offset, limits));
  return parts;
}

Result<Contents> read_safetensors(const FileBytes& bytes, const DecodeLimits& limits) {
  BITSNAP_ASSIGN(SafetensorsParts parts, read_safetensors_parts(bytes, limits));
  Contents contents;
  std::uint64_t offset = parts.data_offset;
  for (TensorInfo& info : parts.header.tensors) {
    const std::uint64_t begin = offset;
    offset += info.size_bytes;
    if (info.size_bytes > 0) contents.tensors.push_back({.info = std::move(info), .offset = begin});
  }
  return contents;
}

}  // namespace bitsnap::interop
