// Element types. They have the names of safetensors, such as "BF16". bitsnap stores tensors with other names as opaque
// bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace bitsnap {

enum class DType : std::uint8_t {
  opaque,   // unknown types and types smaller than a byte; one element is one byte
  boolean,  // "BOOL": one byte
  u8,
  i8,
  u16,
  i16,
  u32,
  i32,
  u64,
  i64,
  f8_e4m3,  // "F8_E4M3": the variant without infinities, torch.float8_e4m3fn
  f8_e5m2,
  f16,
  bf16,
  f32,
  f64,
  c64,  // "C64": two F32, the real part first
};

// Bytes of one element: 1, 2, 4 or 8; 1 for DType::opaque.
[[nodiscard]] std::size_t element_size(DType dtype) noexcept;

// The safetensors name; "opaque" for DType::opaque.
[[nodiscard]] std::string_view dtype_name(DType dtype) noexcept;

// DType::opaque for an unknown name.
[[nodiscard]] DType dtype_from_name(std::string_view name) noexcept;

// True for F8_E4M3, F8_E5M2, F16, BF16, F32 and F64.
[[nodiscard]] bool is_float(DType dtype) noexcept;

}  // namespace bitsnap
