// The text of a pickle, read from front to back: fixed numbers, sized strings and lines. Never leaves the text.
#pragma once

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <type_traits>

#include <fmt/format.h>
#include <bitsnap/error.hpp>

#include "base/bytes.hpp"
#include "base/try.hpp"

namespace bitsnap::interop {

// nullopt unless all of `digits` is one decimal number that fits.
template <typename T>
[[nodiscard]] std::optional<T> parse_pickle_number(std::string_view digits) {
  T value = 0;
  const char* end = digits.data() + digits.size();
  const auto [stop, error] = std::from_chars(digits.data(), end, value);
  if (error != std::errc() || stop != end) return std::nullopt;
  return value;
}

class PickleText {
 public:
  explicit PickleText(std::string_view text) : text_(text) {}

  [[nodiscard]] std::size_t offset() const noexcept { return at_; }
  [[nodiscard]] bool at_end() const noexcept { return at_ == text_.size(); }
  // Precondition: not at the end.
  [[nodiscard]] char next() noexcept { return text_[at_++]; }

  [[nodiscard]] Result<std::string_view> take(std::uint64_t bytes) {
    if (bytes > text_.size() - at_) {
      return fail(ErrorKind::truncated, fmt::format("{} bytes are expected, {} remain", bytes, text_.size() - at_));
    }
    const std::string_view taken = text_.substr(at_, static_cast<std::size_t>(bytes));
    at_ += taken.size();
    return taken;
  }

  // Without its end.
  [[nodiscard]] Result<std::string_view> take_line() {
    const std::size_t end = text_.find('\n', at_);
    if (end == std::string_view::npos) return fail(ErrorKind::truncated, "a line has no end");
    std::string_view line = text_.substr(at_, end - at_);
    at_ = end + 1;
    if (line.ends_with('\r')) line.remove_suffix(1);
    return line;
  }

  // Little-endian.
  template <typename T>
  [[nodiscard]] Result<T> take_number() {
    BITSNAP_ASSIGN(const std::string_view bytes, take(sizeof(T)));
    return load_le<T>(as_byte_span(bytes).data());
  }

  // A size of type Size, then as many bytes.
  template <typename Size>
  [[nodiscard]] Result<std::string_view> take_sized() {
    BITSNAP_ASSIGN(const Size size, take_number<Size>());
    if constexpr (std::is_signed_v<Size>) {
      if (size < 0) return fail(ErrorKind::corrupt, fmt::format("a size is {}", size));
    }
    return take(static_cast<std::uint64_t>(size));
  }

  // The number of a memo, as a line of digits.
  [[nodiscard]] Result<std::uint64_t> take_line_number() {
    BITSNAP_ASSIGN(const std::string_view line, take_line());
    const std::optional<std::uint64_t> number = parse_pickle_number<std::uint64_t>(line);
    if (!number) return fail(ErrorKind::corrupt, "the number of a memo is expected");
    return *number;
  }

 private:
  std::string_view text_;
  std::size_t at_ = 0;
};

}  // namespace bitsnap::interop
