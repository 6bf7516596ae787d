// Writes the numbers of a gradient step: spec.md, "Numbers".
#pragma once

#include <cstddef>

#include "base/bytes.hpp"
#include "base/scratch.hpp"
#include "codec/encoder.hpp"
#include "codec/gradient_step/gradient_step.hpp"

namespace bitsnap::codec {

struct CodedNumbers {
  CodecId coder{};
  std::size_t size = 0;
};

// The most bytes that encode_numbers() writes.
[[nodiscard]] std::size_t max_numbers_size(std::size_t elements) noexcept;

// Encodes numbers of dtype_of(kind). Returns nullopt if their payload would be as large as they are.
[[nodiscard]] Result<std::optional<CodedNumbers>> encode_numbers(GradientNumbers kind, ConstByteSpan numbers,
                                                                 const RowPlace& rows, ByteSpan out, Scratch& scratch);

}  // namespace bitsnap::codec
