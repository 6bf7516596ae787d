// Chooses the kernel, and handles the cases that need none.
#include "entropy/planes.hpp"

#include <bit>
#include <cstdint>
#include <cstring>

#include "base/bytes.hpp"
#include "base/cpu_dispatch.hpp"
#include "entropy/planes_kernel.hpp"

namespace bitsnap::entropy {
namespace {

void split(const std::byte* in, const std::byte* base, std::size_t elements, std::size_t element_size, Change change,
           std::byte* const planes[]) noexcept {
  std::uint8_t* to[kMaxElementSize];
  for (std::size_t k = 0; k < element_size; ++k) to[k] = reinterpret_cast<std::uint8_t*>(planes[k]);
  const auto& by_change = kernels<PlaneKernels>().split[std::countr_zero(element_size) - 1];
  by_change[static_cast<std::size_t>(change)](as_u8(in), as_u8(base), elements, to);
}

void merge(const std::byte* const planes[], const std::byte* base, std::size_t elements, std::size_t element_size,
           Change change, std::byte* out) noexcept {
  const std::uint8_t* from[kMaxElementSize];
  for (std::size_t k = 0; k < element_size; ++k) from[k] = as_u8(planes[k]);
  const auto& by_change = kernels<PlaneKernels>().merge[std::countr_zero(element_size) - 1];
  by_change[static_cast<std::size_t>(change)](from, as_u8(base), elements, reinterpret_cast<std::uint8_t*>(out));
}

void xor_bytes(const std::byte* a, const std::byte* b, std::size_t size, std::byte* out) noexcept {
  std::size_t i = 0;
  for (; i + 8 <= size; i += 8) store_le(out + i, load_le<std::uint64_t>(a + i) ^ load_le<std::uint64_t>(b + i));
  for (; i < size; ++i) out[i] = a[i] ^ b[i];
}

}  // namespace

void split_planes(const std::byte* in, std::size_t elements, std::size_t element_size,
                  std::byte* const planes[]) noexcept {
  if (element_size == 1) {
    if (elements != 0) std::memcpy(planes[0], in, elements);
    return;
  }
  split(in, nullptr, elements, element_size, Change::none, planes);
}

void merge_planes(const std::byte* const planes[], std::size_t elements, std::size_t element_size,
                  std::byte* out) noexcept {
  if (element_size == 1) {
    if (elements != 0) std::memcpy(out, planes[0], elements);
    return;
  }
  merge(planes, nullptr, elements, element_size, Change::none, out);
}

void xor_split_planes(const std::byte* in, const std::byte* base, std::size_t elements, std::size_t element_size,
                      std::byte* const planes[]) noexcept {
  if (element_size == 1) return xor_bytes(in, base, elements, planes[0]);
  split(in, base, elements, element_size, Change::with_base, planes);
}

void xor_merge_planes(const std::byte* const planes[], const std::byte* base, std::size_t elements,
                      std::size_t element_size, std::byte* out) noexcept {
  if (element_size == 1) return xor_bytes(planes[0], base, elements, out);
  merge(planes, base, elements, element_size, Change::with_base, out);
}

void rotated_split_planes(const std::byte* in, std::size_t elements, std::size_t element_size,
                          std::byte* const planes[]) noexcept {
  split(in, nullptr, elements, element_size, Change::rotate, planes);
}

void rotated_merge_planes(const std::byte* const planes[], std::size_t elements, std::size_t element_size,
                          std::byte* out) noexcept {
  merge(planes, nullptr, elements, element_size, Change::rotate, out);
}

bool any_sign_bit_set(const std::byte* in, std::size_t elements, std::size_t element_size) noexcept {
  std::uint64_t signs = 0;
  for (std::size_t bit = 8 * element_size - 1; bit < 64; bit += 8 * element_size) signs |= std::uint64_t{1} << bit;
  const std::size_t size = elements * element_size;
  constexpr std::size_t kStride = 512;  // between checks of the result
  std::size_t at = 0;
  for (; at + kStride <= size; at += kStride) {
    std::uint64_t seen[4] = {0, 0, 0, 0};
    for (std::size_t i = at; i < at + kStride; i += 32) {
      for (std::size_t lane = 0; lane < 4; ++lane) seen[lane] |= load_le<std::uint64_t>(in + i + 8 * lane);
    }
    if (((seen[0] | seen[1] | seen[2] | seen[3]) & signs) != 0) return true;
  }
  for (at += element_size - 1; at < size; at += element_size) {
    if ((in[at] & std::byte{0x80}) != std::byte{0}) return true;
  }
  return false;
}

bool all_equal_element(const std::byte* in, std::size_t elements, std::size_t element_size) noexcept {
  return elements < 2 || std::memcmp(in, in + element_size, (elements - 1) * element_size) == 0;
}

}  // namespace bitsnap::entropy
