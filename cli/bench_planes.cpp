// Byte planes for the general engines. Whole elements go through one register; the loops are simple enough for the
// compiler to vectorize, so that the engines are not measured by a slow transposition.
#include "cli/bench_planes.hpp"

#include <bit>
#include <cstdint>
#include <cstring>

namespace bitsnap::cli {

namespace {

static_assert(std::endian::native == std::endian::little);

template <typename Element, bool kXor>
void split(const std::byte* __restrict in, const std::byte* __restrict base, std::size_t count,
           std::byte* __restrict out) noexcept {
  for (std::size_t plane = 0; plane < sizeof(Element); ++plane) {
    std::byte* __restrict const to = out + plane * count;
    for (std::size_t i = 0; i < count; ++i) {
      Element element{};
      std::memcpy(&element, in + i * sizeof(Element), sizeof(Element));
      if constexpr (kXor) {
        Element other{};
        std::memcpy(&other, base + i * sizeof(Element), sizeof(Element));
        element = static_cast<Element>(element ^ other);
      }
      to[i] = static_cast<std::byte>(element >> (8 * plane));
    }
  }
}

template <typename Element, bool kXor>
void merge(const std::byte* __restrict in, const std::byte* __restrict base, std::size_t count,
           std::byte* __restrict out) noexcept {
  for (std::size_t i = 0; i < count; ++i) {
    Element element{};
    for (std::size_t plane = 0; plane < sizeof(Element); ++plane) {
      element = static_cast<Element>(element | (static_cast<Element>(in[plane * count + i]) << (8 * plane)));
    }
    if constexpr (kXor) {
      Element other{};
      std::memcpy(&other, base + i * sizeof(Element), sizeof(Element));
      element = static_cast<Element>(element ^ other);
    }
    std::memcpy(out + i * sizeof(Element), &element, sizeof(Element));
  }
}

template <typename Element>
void split_elements(std::span<const std::byte> in, std::span<const std::byte> base, std::span<std::byte> out) noexcept {
  const std::size_t count = in.size() / sizeof(Element);
  base.empty() ? split<Element, false>(in.data(), nullptr, count, out.data())
               : split<Element, true>(in.data(), base.data(), count, out.data());
}

template <typename Element>
void merge_elements(std::span<const std::byte> in, std::span<const std::byte> base, std::span<std::byte> out) noexcept {
  const std::size_t count = in.size() / sizeof(Element);
  base.empty() ? merge<Element, false>(in.data(), nullptr, count, out.data())
               : merge<Element, true>(in.data(), base.data(), count, out.data());
}

}  // namespace

void split_planes(std::span<const std::byte> in, std::span<const std::byte> base, std::size_t element_bytes,
                  std::span<std::byte> out) noexcept {
  switch (element_bytes) {
    case 2: return split_elements<std::uint16_t>(in, base, out);
    case 4: return split_elements<std::uint32_t>(in, base, out);
    case 8: return split_elements<std::uint64_t>(in, base, out);
    default: return split_elements<std::uint8_t>(in, base, out);
  }
}

void merge_planes(std::span<const std::byte> in, std::span<const std::byte> base, std::size_t element_bytes,
                  std::span<std::byte> out) noexcept {
  switch (element_bytes) {
    case 2: return merge_elements<std::uint16_t>(in, base, out);
    case 4: return merge_elements<std::uint32_t>(in, base, out);
    case 8: return merge_elements<std::uint64_t>(in, base, out);
    default: return merge_elements<std::uint8_t>(in, base, out);
  }
}

}  // namespace bitsnap::cli
