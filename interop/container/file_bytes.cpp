#include "interop/container/file_bytes.hpp"

#include <fmt/format.h>

#include "base/try.hpp"

namespace bitsnap::interop {

Result<void> FileBytes::check(std::uint64_t offset, std::uint64_t bytes) const {
  if (offset <= size_ && bytes <= size_ - offset) return {};
  return fail(ErrorKind::truncated,
              fmt::format("{} bytes are expected at {}, but there are {} bytes in all", bytes, offset, size_));
}

Result<void> FileBytes::read_at(std::uint64_t offset, ByteSpan out) const {
  BITSNAP_TRY(check(offset, out.size()));
  return out.empty() ? Result<void>() : (*read_)(begin_ + offset, out);
}

Result<std::string> FileBytes::read_text(std::uint64_t offset, std::uint64_t bytes) const {
  BITSNAP_TRY(check(offset, bytes));
  std::string text(static_cast<std::size_t>(bytes), '\0');
  BITSNAP_TRY(read_at(offset, std::as_writable_bytes(std::span(text))));
  return text;
}

Result<FileBytes> FileBytes::part(std::uint64_t offset, std::uint64_t bytes) const {
  BITSNAP_TRY(check(offset, bytes));
  return FileBytes(read_, begin_ + offset, bytes);
}

}  // namespace bitsnap::interop
