// Checks the arguments of the functions of <bitsnap/codec.hpp>.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string_view>

#include <bitsnap/dtype.hpp>
#include <bitsnap/error.hpp>

#include "codec/decoder.hpp"

namespace bitsnap::codec {

// The base of a chunk as the list of inputs that codecs take.
class BaseInput {
 public:
  BaseInput(DType dtype, ConstByteSpan base) noexcept
      : input_{Input{.kind = InputKind::base, .dtype = dtype, .bytes = base}}, present_(!base.empty()) {}

  [[nodiscard]] std::span<const Input> inputs() const noexcept { return {input_.data(), present_ ? 1U : 0U}; }

 private:
  std::array<Input, 1> input_;
  bool present_;
};

// The decoder of this name, or invalid_argument.
[[nodiscard]] Result<const Decoder*> named_decoder(std::string_view codec);

// The number of elements in a chunk of chunk_bytes bytes. Fails with invalid_argument if it is not 1 to kChunkElements
// whole elements, if the base has another size, or if the codec does not accept these inputs.
[[nodiscard]] Result<std::size_t> check_chunk(const Decoder& decoder, DType dtype, std::size_t chunk_bytes,
                                              const BaseInput& base);

}  // namespace bitsnap::codec
