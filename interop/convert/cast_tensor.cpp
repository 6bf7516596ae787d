#include "interop/convert/cast_tensor.hpp"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "base/bytes.hpp"
#include "base/try.hpp"

namespace bitsnap::interop {
namespace {

constexpr std::uint32_t kSign = 0x80000000U;
constexpr std::uint32_t kInfinity = 0x7F800000U;

template <typename T>
T load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

// The bits as a float. Every value of f16 and bf16 is one; of f64, the nearest.
float from_f16(std::uint16_t bits) {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000U) << 16U;
  const std::uint32_t exponent = (bits >> 10U) & 0x1FU;
  const std::uint32_t mantissa = bits & 0x3FFU;
  if (exponent == 0x1F) return std::bit_cast<float>(sign | kInfinity | (mantissa << 13U));
  if (exponent == 0) {
    const float small = static_cast<float>(mantissa) * 0x1p-24F;
    return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(small));
  }
  return std::bit_cast<float>(sign | ((exponent + 112U) << 23U) | (mantissa << 13U));
}

std::uint16_t to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & ~kSign) > kInfinity) return static_cast<std::uint16_t>((bits >> 16U) | 0x40U);  // NaN stays one
  return static_cast<std::uint16_t>((bits + 0x7FFFU + ((bits >> 16U) & 1U)) >> 16U);
}

std::uint16_t to_f16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>((bits & kSign) >> 16U);
  const std::uint32_t magnitude = bits & ~kSign;
  if (magnitude > kInfinity) return static_cast<std::uint16_t>(sign | 0x7E00U | ((magnitude >> 13U) & 0x3FFU));
  if (magnitude >= 0x477FF000U) return sign | 0x7C00U;  // from 65,520 on
  if (magnitude >= 0x38800000U) {                       // from 2^-14 on: a normal number
    const std::uint32_t rebased = magnitude - (112U << 23U);
    return static_cast<std::uint16_t>(sign | ((rebased + 0xFFFU + ((rebased >> 13U) & 1U)) >> 13U));
  }
  // Adding 2^-1 leaves the multiple of 2^-24 that the hardware rounds to in the lowest bits.
  const float shifted = std::bit_cast<float>(magnitude) + 0.5F;
  return static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(shifted) - 0x3F000000U));
}

float element(DType dtype, const std::byte* from) {
  switch (dtype) {
    case DType::f64: return static_cast<float>(load<double>(from));
    case DType::f16: return from_f16(load<std::uint16_t>(from));
    case DType::bf16: return std::bit_cast<float>(static_cast<std::uint32_t>(load<std::uint16_t>(from)) << 16U);
    default: return load<float>(from);
  }
}

void store(DType dtype, float value, std::byte* to) {
  if (dtype == DType::f32) {
    std::memcpy(to, &value, sizeof value);
    return;
  }
  const std::uint16_t bits = dtype == DType::f16 ? to_f16(value) : to_bf16(value);
  std::memcpy(to, &bits, sizeof bits);
}

}  // namespace

bool is_castable(DType dtype) noexcept {
  return dtype == DType::f64 || dtype == DType::f32 || dtype == DType::f16 || dtype == DType::bf16;
}

TensorSource cast(TensorSource tensor, DType dtype) {
  const DType from = tensor.info.dtype;
  if (!is_castable(from) || from == dtype) return tensor;
  TensorSource made;
  made.info = tensor.info;
  made.info.dtype = dtype;
  made.info.dtype_name = dtype_name(dtype);
  made.info.size_bytes = tensor.info.element_count() * element_size(dtype);
  made.read = [tensor = std::move(tensor), from, dtype](std::uint64_t offset, ByteSpan out) -> Result<void> {
    const std::size_t elements = out.size() / element_size(dtype);
    std::vector<std::byte> bytes(elements * element_size(from));
    const std::uint64_t begin = offset / element_size(dtype) * element_size(from);
    if (tensor.data != nullptr) {
      std::copy_n(tensor.data + begin, bytes.size(), bytes.begin());
    } else {
      BITSNAP_TRY(tensor.read(begin, bytes));
    }
    for (std::size_t i = 0; i < elements; ++i) {
      store(dtype, element(from, bytes.data() + i * element_size(from)), out.data() + i * element_size(dtype));
    }
    return {};
  };
  return made;
}

}  // namespace bitsnap::interop
