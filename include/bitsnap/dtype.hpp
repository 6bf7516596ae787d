// Element types. Names are those of safetensors ("BF16"); a name that is not listed here is carried as opaque bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace bitsnap {

enum class DType : std::uint8_t {
  opaque,   // bytes whose meaning bitsnap does not know: unknown and sub-byte types; one element is one byte
  boolean,  // "BOOL", one byte
  u8,
  i8,
  u16,
  i16,
  u32,
  i32,
  u64,
  i64,
  f8_e4m3,  // "F8_E4M3": the finite variant, as torch.float8_e4m3fn
  f8_e5m2,
  f16,
  bf16,
  f32,
  f64,
  c64,  // "C64": two f32, real then imaginary
};

// Bytes of one element: 1, 2, 4 or 8. Opaque: 1.
[[nodiscard]] std::size_t element_size(DType dtype) noexcept;

// The safetensors name; "opaque" for DType::opaque.
[[nodiscard]] std::string_view dtype_name(DType dtype) noexcept;

// DType::opaque for a name that is not known.
[[nodiscard]] DType dtype_from_name(std::string_view name) noexcept;

// f8, f16, bf16, f32 and f64; not c64.
[[nodiscard]] bool is_float(DType dtype) noexcept;

}  // namespace bitsnap
