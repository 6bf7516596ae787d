// Checks and errors that decoders share.
#pragma once

#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "base/try.hpp"
#include "codec/decoder.hpp"

namespace bitsnap::codec {

// `return corrupt("form is {}, expected 0 or 1", form)` from a function that returns a Result.
template <typename... Args>
[[nodiscard]] tl::unexpected<Error> corrupt(fmt::format_string<Args...> message, Args&&... args) {
  return fail(ErrorKind::corrupt, fmt::format(message, std::forward<Args>(args)...));
}

// One input, of kind base, in the chunk's own dtype.
[[nodiscard]] inline bool is_one_base(DType dtype, std::span<const Input> inputs) noexcept {
  return inputs.size() == 1 && inputs[0].kind == InputKind::base && inputs[0].dtype == dtype;
}

[[nodiscard]] inline Result<void> check_payload_size(std::string_view codec, std::size_t found, std::size_t expected) {
  if (found == expected) return {};
  return fail(found < expected ? ErrorKind::truncated : ErrorKind::corrupt,
              fmt::format("{} payload: expected {} bytes, found {}", codec, expected, found));
}

}  // namespace bitsnap::codec
