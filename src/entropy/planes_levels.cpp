// The plane kernels, in vectors as wide as the registers of each level. A round of zipping joins pairs of vectors in
// turn; log2(element size) rounds turn the bytes of planes into elements. Splitting is the inverse: by unzipping, or by
// a transposition where any bytes of a lane can be picked at once.
#include "entropy/planes_kernel.hpp"

#include "base/kernel_bits.hpp"

namespace bitsnap::entropy {
namespace {

#if defined(__AVX512VBMI__)
constexpr std::size_t kWidth = 64;
#elif defined(__AVX2__)
constexpr std::size_t kWidth = 32;
#else
constexpr std::size_t kWidth = 16;
#endif
constexpr std::size_t kLane = 16;  // the bytes within which wider instructions zip

template <typename Element>
struct VectorOf {
  using Type [[gnu::vector_size(kWidth)]] = Element;
};
using Bytes = VectorOf<std::uint8_t>::Type;
using Words = VectorOf<std::uint64_t>::Type;

// 0, 1, 2, ... as arguments of a template.
template <std::size_t... kI>
struct Numbers {};
template <std::size_t kLeft, std::size_t... kI>
struct NumbersBelow : NumbersBelow<kLeft - 1, kLeft - 1, kI...> {};
template <std::size_t... kI>
struct NumbersBelow<0, kI...> {
  using Type = Numbers<kI...>;
};

template <typename Vector, typename From, std::size_t... kI>
[[gnu::always_inline]] inline Bytes picked(Bytes a, Bytes b, From, Numbers<kI...>) noexcept {
  return reinterpret_cast<Bytes>(
      __builtin_shufflevector(reinterpret_cast<Vector>(a), reinterpret_cast<Vector>(b), From{}(kI)...));
}

// Place i has element from(i) of two vectors, seen as one vector of these elements after the other.
template <typename Vector, typename From>
[[gnu::always_inline]] inline Bytes pick(Bytes a, Bytes b, From from) noexcept {
  return picked<Vector>(a, b, from, typename NumbersBelow<kWidth / sizeof(Vector{}[0])>::Type{});
}

template <std::size_t kSize>
[[gnu::always_inline]] inline void unzip_all(Bytes (&v)[kSize]) noexcept {
#pragma GCC unroll 3
  for (std::size_t round = 1; round < kSize; round *= 2) {
    Bytes next[kSize];
#pragma GCC unroll 4
    for (std::size_t k = 0; k < kSize / 2; ++k) {
      next[k] = pick<Bytes>(v[2 * k], v[2 * k + 1], [](std::size_t i) { return 2 * i; });
      next[k + kSize / 2] = pick<Bytes>(v[2 * k], v[2 * k + 1], [](std::size_t i) { return 2 * i + 1; });
    }
    __builtin_memcpy(v, next, sizeof next);
  }
}

// The units of two vectors in turn, for each span: those of the first or of the second half of the span. Units and
// spans are numbers of elements of `Vector`.
template <typename Vector, std::size_t kUnit, std::size_t kSpan, std::size_t kHalf>
[[gnu::always_inline]] inline Bytes zip(Bytes a, Bytes b) noexcept {
  return pick<Vector>(a, b, [](std::size_t i) {
    constexpr std::size_t kElements = kWidth / sizeof(Vector{}[0]);
    const std::size_t unit = i % kSpan / kUnit;
    return unit % 2 * kElements + i / kSpan * kSpan + kHalf * kSpan / 2 + unit / 2 * kUnit + i % kUnit;
  });
}

template <typename Vector, std::size_t kUnit, std::size_t kSpan, std::size_t kSize>
[[gnu::always_inline]] inline void zip_all(Bytes (&v)[kSize]) noexcept {
#pragma GCC unroll 3
  for (std::size_t round = 1; round < kSize; round *= 2) {
    Bytes next[kSize];
#pragma GCC unroll 4
    for (std::size_t k = 0; k < kSize / 2; ++k) {
      next[2 * k] = zip<Vector, kUnit, kSpan, 0>(v[k], v[k + kSize / 2]);
      next[2 * k + 1] = zip<Vector, kUnit, kSpan, 1>(v[k], v[k + kSize / 2]);
    }
    __builtin_memcpy(v, next, sizeof next);
  }
}

// The same with fewer instructions, if one can pick any bytes of a lane: groups the bytes of each lane by plane,
// transposes the groups of a lane, and puts the groups of all lanes in order.
template <typename Group, std::size_t kSize>
[[gnu::always_inline]] inline void transpose(Bytes (&v)[kSize]) noexcept {
  using Groups = typename VectorOf<Group>::Type;
  static_assert(sizeof(Group) * kSize == kLane);
#pragma GCC unroll 8
  for (Bytes& own : v) {
    own = pick<Bytes>(own, own, [](std::size_t i) {
      return i / kLane * kLane + i % sizeof(Group) * kSize + i % kLane / sizeof(Group);
    });
  }
  zip_all<Groups, 1, kSize>(v);
#pragma GCC unroll 8
  for (Bytes& own : v) {
    own = pick<Groups>(own, own, [](std::size_t i) {
      constexpr std::size_t kLanes = kWidth / kLane;
      return i % kLanes * kSize + i / kLanes;
    });
  }
}

// An element or a vector of elements, XORed with number i of the base or rotated left by `turn` bits.
template <typename Element, Change kChange, typename Elements>
[[gnu::always_inline]] inline Elements changed(Elements elements, [[maybe_unused]] const std::uint8_t* base,
                                               [[maybe_unused]] std::size_t i, [[maybe_unused]] int turn) noexcept {
  if constexpr (kChange == Change::with_base) return elements ^ load_at<Elements>(base, i);
  if constexpr (kChange == Change::rotate) {
    constexpr int kBits = 8 * sizeof(Element);
    return static_cast<Elements>(elements << turn) | static_cast<Elements>(elements >> (kBits - turn));
  }
  return elements;
}

template <typename Element, typename Group, Change kChange>
void split(const std::uint8_t* in, const std::uint8_t* base, std::size_t elements,
           std::uint8_t* const* planes) noexcept {
  using Elements = typename VectorOf<Element>::Type;
  constexpr std::size_t kSize = sizeof(Element);
  std::uint8_t* to[kSize];
  for (std::size_t k = 0; k < kSize; ++k) to[k] = planes[k];
  std::size_t i = 0;
  for (; i + kWidth <= elements; i += kWidth) {
    Bytes v[kSize];
#pragma GCC unroll 8
    for (std::size_t k = 0; k < kSize; ++k) {
      const std::size_t at = i / kWidth * kSize + k;
      v[k] = reinterpret_cast<Bytes>(changed<Element, kChange>(load_at<Elements>(in, at), base, at, 1));
    }
    if constexpr (kWidth > kLane) {
      transpose<Group>(v);
    } else {
      unzip_all(v);
    }
#pragma GCC unroll 8
    for (std::size_t k = 0; k < kSize; ++k) store_at(to[k] + i, 0, v[k]);
  }
  for (; i < elements; ++i) {
    const auto element = changed<Element, kChange>(load_at<Element>(in, i), base, i, 1);
    for (std::size_t k = 0; k < kSize; ++k) to[k][i] = static_cast<std::uint8_t>(element >> (8 * k));
  }
}

template <typename Element, Change kChange>
void merge(const std::uint8_t* const* planes, const std::uint8_t* base, std::size_t elements,
           std::uint8_t* out) noexcept {
  using Elements = typename VectorOf<Element>::Type;
  constexpr std::size_t kSize = sizeof(Element);
  constexpr int kBack = 8 * kSize - 1;
  const std::uint8_t* from[kSize];
  for (std::size_t k = 0; k < kSize; ++k) from[k] = planes[k];
  std::size_t i = 0;
  for (; i + kWidth <= elements; i += kWidth) {
    Bytes v[kSize];
#pragma GCC unroll 8
    for (std::size_t k = 0; k < kSize; ++k) v[k] = load_at<Bytes>(from[k] + i, 0);
    zip_all<Bytes, 1, kLane>(v);
    if constexpr (kWidth > kLane) zip_all<Words, 2, kWidth / sizeof(std::uint64_t)>(v);  // the lanes
#pragma GCC unroll 8
    for (std::size_t k = 0; k < kSize; ++k) {
      const std::size_t at = i / kWidth * kSize + k;
      store_at(out, at, changed<Element, kChange>(reinterpret_cast<Elements>(v[k]), base, at, kBack));
    }
  }
  for (; i < elements; ++i) {
    Element element = 0;
    for (std::size_t k = 0; k < kSize; ++k) {
      element = static_cast<Element>(element | static_cast<Element>(Element{from[k][i]} << (8 * k)));
    }
    store_at(out, i, changed<Element, kChange>(element, base, i, kBack));
  }
}

constexpr PlaneKernels plane_kernels() noexcept {
  using enum Change;
  using U16 = std::uint16_t;
  using U32 = std::uint32_t;
  using U64 = std::uint64_t;
  return {.split = {{split<U16, U64, none>, split<U16, U64, with_base>, split<U16, U64, rotate>},
                    {split<U32, U32, none>, split<U32, U32, with_base>, split<U32, U32, rotate>},
                    {split<U64, U16, none>, split<U64, U16, with_base>, split<U64, U16, rotate>}},
          .merge = {{merge<U16, none>, merge<U16, with_base>, merge<U16, rotate>},
                    {merge<U32, none>, merge<U32, with_base>, merge<U32, rotate>},
                    {merge<U64, none>, merge<U64, with_base>, merge<U64, rotate>}}};
}

}  // namespace

constinit const PlaneKernels PlaneKernels::BITSNAP_KERNEL_LEVEL = plane_kernels();

}  // namespace bitsnap::entropy
