// Chunks of every kind of bits, bases at every distance from them, and buffers that detect accesses beyond their ends.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include <bitsnap/dtype.hpp>

#include "base/bytes.hpp"

namespace bitsnap::codec {

inline constexpr std::array kAllDTypes = {
    DType::opaque, DType::boolean, DType::u8,  DType::i8,  DType::u16,     DType::i16,
    DType::u32,    DType::i32,     DType::u64, DType::i64, DType::f8_e4m3, DType::f8_e5m2,
    DType::f16,    DType::bf16,    DType::f32, DType::f64, DType::c64,
};

enum class Pattern : std::uint8_t {
  zeros,
  ones,  // every bit set: a NaN in every float
  random,
  special_floats,  // NaNs with payloads, infinities, zeros and subnormals of both signs
  ramp,            // element i holds i
  byte_ramp,       // byte i holds i
  trained_like,
  non_negative,   // trained-like, without the sign
  alternating,    // 00.. and FF.. alternate
  one_outlier,    // one element repeated, except for the last
  low_half_zero,  // trained-like, with the lower half of the bytes of each element zero
  rounded,  // trained-like; elements of 2 or more bytes keep their upper 12 bits (24 if they have more than 2 bytes and
            // the chunk has an even number), except for one element in a thousand
  factored,   // rows of 128 with scales by row and by column, without signs; some rows are zero
  multiples,  // few multiples of 2^-10, some of them negative
};

inline constexpr std::array kAllPatterns = {
    Pattern::zeros,         Pattern::ones,         Pattern::random,       Pattern::special_floats, Pattern::ramp,
    Pattern::byte_ramp,     Pattern::trained_like, Pattern::non_negative, Pattern::alternating,    Pattern::one_outlier,
    Pattern::low_half_zero, Pattern::rounded,      Pattern::factored,     Pattern::multiples,
};

[[nodiscard]] std::string_view pattern_name(Pattern pattern) noexcept;
[[nodiscard]] std::vector<std::byte> make_chunk(Pattern pattern, DType dtype, std::size_t elements, std::uint64_t seed);

// How a base differs from the chunk that is coded against it.
enum class BaseKind : std::uint8_t {
  none,
  equal,
  sparse,     // one element in 64 differs
  near,       // every other element is off by a few units in the last place
  decayed,    // of four bytes: floats that lost a twentieth since, and some of them gained a little
  drifted,    // off by anything from one unit in the last place to a sixteenth of the range
  unrelated,  // random bits
  inverted,   // every bit differs
};

inline constexpr std::array kAllBaseKinds = {BaseKind::none,      BaseKind::equal,   BaseKind::sparse,
                                             BaseKind::near,      BaseKind::decayed, BaseKind::drifted,
                                             BaseKind::unrelated, BaseKind::inverted};

[[nodiscard]] std::string_view base_kind_name(BaseKind kind) noexcept;

// Empty for BaseKind::none; otherwise the size of `chunk`.
[[nodiscard]] std::vector<std::byte> make_base(BaseKind kind, ConstByteSpan chunk, std::size_t element_bytes,
                                               std::uint64_t seed);

// Elements of another float dtype for a peer of the chunk: F32 that round to the BF16 or F16 elements, or the BF16 that
// the F32 elements round to. Empty for other pairs of dtypes.
[[nodiscard]] std::vector<std::byte> make_peer(DType dtype, ConstByteSpan chunk, DType peer_dtype, std::uint64_t seed);

// Memory of exactly `size` bytes at an odd address. Under AddressSanitizer the heap block ends with it, which catches
// every access beyond it; otherwise canaries around it detect writes.
class GuardedBuffer {
 public:
  explicit GuardedBuffer(std::size_t size, std::byte fill = std::byte{0xA5});
  explicit GuardedBuffer(ConstByteSpan contents);

  [[nodiscard]] ByteSpan span() noexcept { return {memory_.get() + before_, size_}; }
  [[nodiscard]] bool intact() const noexcept;

 private:
  std::size_t before_;
  std::size_t size_;
  std::size_t after_;
  std::unique_ptr<std::byte[]> memory_;
};

}  // namespace bitsnap::codec
