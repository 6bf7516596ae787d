// Little-endian loads and stores on byte spans, and the checked cursor that parsers read with.
//
// Parsers read untrusted bytes only through the cursor: it cannot leave its span, and its error names the field and the
// offset. It owns nothing.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include <bitsnap/error.hpp>

#include "base/try.hpp"

namespace bitsnap {

static_assert(std::endian::native == std::endian::little, "the codecs read tensors in memory as little-endian");

using ByteSpan = std::span<std::byte>;
using ConstByteSpan = std::span<const std::byte>;

// Precondition: sizeof(T) bytes are readable at `from`; no alignment is needed.
template <typename T>
  requires std::is_trivially_copyable_v<T>
[[nodiscard]] inline T load_le(const std::byte* from) noexcept {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

template <typename T>
  requires std::is_trivially_copyable_v<T>
inline void store_le(std::byte* to, T value) noexcept {
  std::memcpy(to, &value, sizeof(T));
}

[[nodiscard]] inline ConstByteSpan as_byte_span(std::string_view text) noexcept {
  return std::as_bytes(std::span(text.data(), text.size()));
}

[[nodiscard]] inline std::string_view as_text(ConstByteSpan bytes) noexcept {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// For kernels, which see bytes as numbers.
[[nodiscard]] inline const std::uint8_t* as_u8(const std::byte* bytes) noexcept {
  return reinterpret_cast<const std::uint8_t*>(bytes);
}
[[nodiscard]] inline std::uint8_t* as_u8(std::byte* bytes) noexcept { return reinterpret_cast<std::uint8_t*>(bytes); }
[[nodiscard]] inline const std::uint8_t* as_u8(ConstByteSpan bytes) noexcept { return as_u8(bytes.data()); }

class ByteCursor {
 public:
  explicit ByteCursor(ConstByteSpan bytes) noexcept : bytes_(bytes) {}

  [[nodiscard]] std::size_t offset() const noexcept { return offset_; }
  [[nodiscard]] std::size_t remaining() const noexcept { return bytes_.size() - offset_; }

  template <typename T>
    requires std::is_integral_v<T>
  [[nodiscard]] Result<T> read(std::string_view what) {
    BITSNAP_ASSIGN(const ConstByteSpan field, take(sizeof(T), what));
    return load_le<T>(field.data());
  }

  // The next `size` bytes, in place.
  [[nodiscard]] Result<ConstByteSpan> take(std::uint64_t size, std::string_view what) {
    if (size > remaining()) {
      return fail(ErrorKind::truncated, std::string(what) + " at offset " + std::to_string(offset_) + " needs " +
                                            std::to_string(size) + " bytes, " + std::to_string(remaining()) +
                                            " remain");
    }
    const ConstByteSpan field = bytes_.subspan(offset_, static_cast<std::size_t>(size));
    offset_ += static_cast<std::size_t>(size);
    return field;
  }

 private:
  ConstByteSpan bytes_;
  std::size_t offset_ = 0;
};

}  // namespace bitsnap
