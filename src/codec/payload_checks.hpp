// Checks that decoders share: which inputs a codec takes, and whether a payload has the size it has to have.
#pragma once

#include <string>

#include "base/try.hpp"
#include "codec/decoder.hpp"

namespace bitsnap::codec {

// One input, of kind base, in the chunk's own dtype.
[[nodiscard]] inline bool is_one_base(DType dtype, std::span<const Input> inputs) noexcept {
  return inputs.size() == 1 && inputs[0].kind == InputKind::base && inputs[0].dtype == dtype;
}

[[nodiscard]] inline Result<void> check_payload_size(std::string_view codec, std::size_t found, std::size_t expected) {
  if (found == expected) return {};
  return fail(
      found < expected ? ErrorKind::truncated : ErrorKind::corrupt,
      std::string(codec) + " payload: expected " + std::to_string(expected) + " bytes, found " + std::to_string(found));
}

}  // namespace bitsnap::codec
