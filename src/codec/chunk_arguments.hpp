// What the functions of <bitsnap/codec.hpp> are handed, held against what codecs take for granted.
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

// The decoder of that name; invalid_argument, naming it, where there is none.
[[nodiscard]] Result<const Decoder*> named_decoder(std::string_view codec);

// Elements of a chunk of so many bytes. invalid_argument for no elements, part of one, or more than a chunk has, for a
// base of another size, and for a codec that does not take these inputs.
[[nodiscard]] Result<std::size_t> check_chunk(const Decoder& decoder, DType dtype, std::size_t chunk_bytes,
                                              const BaseInput& base);

}  // namespace bitsnap::codec
