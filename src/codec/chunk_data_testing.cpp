#include "codec/chunk_data_testing.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

#include "codec/trained_like_testing.hpp"

namespace bitsnap::codec {
namespace {

#if defined(__SANITIZE_ADDRESS__)
constexpr bool kAddressSanitizer = true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
constexpr bool kAddressSanitizer = true;
#else
constexpr bool kAddressSanitizer = false;
#endif
#else
constexpr bool kAddressSanitizer = false;
#endif

constexpr std::byte kCanary{0xC9};

// Bits that float code may change: NaNs (quiet, signalling, with payloads), infinities, zeros, subnormals.
std::uint64_t special_float(DType dtype, std::size_t index) {
  const std::size_t width = element_size(dtype);
  const int total = static_cast<int>(width * 8);
  int exponent_bits = 0;
  switch (dtype) {
    case DType::f8_e4m3: exponent_bits = 4; break;
    case DType::f8_e5m2:
    case DType::f16: exponent_bits = 5; break;
    case DType::f64: exponent_bits = 11; break;
    case DType::u8:
    case DType::i8:
    case DType::opaque:
    case DType::boolean: exponent_bits = 4; break;
    default: exponent_bits = total >= 16 ? 8 : 4; break;
  }
  const int mantissa_bits = total - 1 - exponent_bits;
  const std::uint64_t sign = std::uint64_t{1} << (total - 1);
  const std::uint64_t infinity = ((std::uint64_t{1} << exponent_bits) - 1) << mantissa_bits;
  const std::uint64_t quiet = std::uint64_t{1} << (mantissa_bits - 1);
  const std::array<std::uint64_t, 12> specials = {0,
                                                  sign,
                                                  infinity,
                                                  sign | infinity,
                                                  infinity | quiet,
                                                  sign | infinity | quiet,
                                                  1,
                                                  sign | 1,
                                                  infinity | 1,
                                                  sign | infinity | 1,
                                                  quiet,
                                                  infinity | quiet | 1};
  return specials[index % specials.size()];
}

// Up to three octaves up or down, evenly distributed.
double octaves_of(std::size_t number) noexcept { return static_cast<double>(number * 40503 & 0xffff) / 10923 - 3; }

std::uint64_t element_of(Pattern pattern, DType dtype, std::size_t index, std::size_t elements, TestRandom& random) {
  const std::size_t width = element_size(dtype);
  const std::uint64_t top_bit = std::uint64_t{1} << (width * 8 - 1);
  switch (pattern) {
    case Pattern::zeros: return 0;
    case Pattern::ones: return ~std::uint64_t{0};
    case Pattern::random: return random.next();
    case Pattern::special_floats: return special_float(dtype, index + index / 12);
    case Pattern::ramp: return index;
    case Pattern::byte_ramp: {
      std::uint64_t bits = 0;
      for (std::size_t k = 0; k < width; ++k) bits |= std::uint64_t{(index * width + k) & 0xFF} << (8 * k);
      return bits;
    }
    case Pattern::trained_like: return element_bits(dtype, 0.02 * random.normal());
    case Pattern::non_negative: return element_bits(dtype, 0.02 * random.normal()) & (top_bit - 1);
    case Pattern::alternating: return index % 2 == 0 ? 0 : ~std::uint64_t{0};
    case Pattern::one_outlier: return element_bits(dtype, index + 1 == elements ? 0.75 : 1.5);
    case Pattern::low_half_zero: return element_bits(dtype, 0.02 * random.normal()) >> (width * 4) << (width * 4);
    case Pattern::rounded: {
      const std::uint64_t bits = element_bits(dtype, 0.02 * random.normal());
      const std::size_t kept = width > 2 && elements % 2 == 0 ? 24 : 12;
      const std::size_t dropped = width > 1 && index % 1000 != 500 ? 8 * width - kept : 0;
      return bits >> dropped << dropped;
    }
    case Pattern::factored: {
      const double normal = random.normal();
      if (index / 128 % 8 == 5) return 0;
      const double scale = std::exp2(octaves_of(index / 128) + octaves_of(index % 128));
      return element_bits(dtype, 0.02 * scale * (0.01 + normal * normal));
    }
    case Pattern::multiples: {
      const double multiple = std::abs(std::rint(8 * random.normal())) * 0x1p-10;
      return element_bits(dtype, multiple > 0 && random.below(8) == 0 ? -multiple : multiple);
    }
  }
  return 0;
}

// A float that becomes this one, or slightly less, when multiplied by 0.95; the float itself if it is not normal.
std::uint32_t decayed_from(std::uint32_t bits, TestRandom& random) {
  const double gain = random.below(4) == 0 ? 0.0 : 1e-6 * static_cast<double>(std::uint64_t{1} << random.below(16));
  const std::uint32_t magnitude = bits & 0x7FFFFFFF;
  if (magnitude < 0x08000000 || magnitude >= 0x78000000) return bits;
  return std::bit_cast<std::uint32_t>(
      static_cast<float>(static_cast<double>(std::bit_cast<float>(bits)) * (1.0 - gain) / 0.95));
}

}  // namespace

std::string_view pattern_name(Pattern pattern) noexcept {
  switch (pattern) {
    case Pattern::zeros: return "zeros";
    case Pattern::ones: return "ones";
    case Pattern::random: return "random";
    case Pattern::special_floats: return "special_floats";
    case Pattern::ramp: return "ramp";
    case Pattern::byte_ramp: return "byte_ramp";
    case Pattern::trained_like: return "trained_like";
    case Pattern::non_negative: return "non_negative";
    case Pattern::alternating: return "alternating";
    case Pattern::one_outlier: return "one_outlier";
    case Pattern::low_half_zero: return "low_half_zero";
    case Pattern::rounded: return "rounded";
    case Pattern::factored: return "factored";
    case Pattern::multiples: return "multiples";
  }
  return "unknown";
}

std::vector<std::byte> make_chunk(Pattern pattern, DType dtype, std::size_t elements, std::uint64_t seed) {
  const std::size_t width = element_size(dtype);
  std::vector<std::byte> chunk(elements * width);
  TestRandom random(seed);
  for (std::size_t i = 0; i < elements; ++i) {
    const std::uint64_t bits = element_of(pattern, dtype, i, elements, random);
    std::memcpy(chunk.data() + i * width, &bits, width);
  }
  return chunk;
}

std::string_view base_kind_name(BaseKind kind) noexcept {
  switch (kind) {
    case BaseKind::none: return "none";
    case BaseKind::equal: return "equal";
    case BaseKind::sparse: return "sparse";
    case BaseKind::near: return "near";
    case BaseKind::decayed: return "decayed";
    case BaseKind::drifted: return "drifted";
    case BaseKind::unrelated: return "unrelated";
    case BaseKind::inverted: return "inverted";
  }
  return "unknown";
}

std::vector<std::byte> make_base(BaseKind kind, ConstByteSpan chunk, std::size_t element_bytes, std::uint64_t seed) {
  if (kind == BaseKind::none) return {};
  std::vector<std::byte> base(chunk.begin(), chunk.end());
  TestRandom random(seed ^ 0xBA5E);
  for (std::size_t i = 0; i * element_bytes < base.size(); ++i) {
    std::uint64_t bits = 0;
    std::memcpy(&bits, base.data() + i * element_bytes, element_bytes);
    switch (kind) {
      case BaseKind::none:
      case BaseKind::equal: break;
      case BaseKind::sparse:
        if (random.below(64) == 0) bits ^= 1 + random.below(255);
        break;
      case BaseKind::near:
        if (random.below(2) == 0) bits += random.below(7) - 3;
        break;
      case BaseKind::decayed: bits = decayed_from(static_cast<std::uint32_t>(bits), random); break;
      case BaseKind::drifted: {
        const std::uint64_t size = std::uint64_t{1} << random.below(8 * element_bytes - 3);
        bits += random.below(2 * size) - size;
        break;
      }
      case BaseKind::unrelated: bits = random.next(); break;
      case BaseKind::inverted: bits = ~bits; break;
    }
    std::memcpy(base.data() + i * element_bytes, &bits, element_bytes);
  }
  return base;
}

namespace {

// A finite F16 as F32.
std::uint32_t widened_f16(std::uint16_t bits) {
  const std::uint32_t sign = std::uint32_t{bits & 0x8000U} << 16;
  const std::uint32_t exponent = bits >> 10 & 31U;
  std::uint32_t mantissa = bits & 0x3ffU;
  if (exponent > 0) return sign | (exponent + 112) << 23 | mantissa << 13;
  if (mantissa == 0) return sign;
  std::uint32_t leading = 0;
  while ((mantissa & 0x400U) == 0) {
    mantissa <<= 1;
    ++leading;
  }
  return sign | (113 - leading) << 23 | (mantissa & 0x3ffU) << 13;
}

std::vector<std::byte> bytes_of_elements(const std::vector<std::uint32_t>& elements, std::size_t element_bytes) {
  std::vector<std::byte> bytes(elements.size() * element_bytes);
  for (std::size_t i = 0; i < elements.size(); ++i) {
    std::memcpy(bytes.data() + i * element_bytes, &elements[i], element_bytes);
  }
  return bytes;
}

}  // namespace

std::vector<std::byte> make_peer(DType dtype, ConstByteSpan chunk, DType peer_dtype, std::uint64_t seed) {
  TestRandom random(seed ^ 0x9EE5);
  std::vector<std::uint32_t> peer;
  if ((dtype == DType::bf16 || dtype == DType::f16) && peer_dtype == DType::f32) {
    for (std::size_t i = 0; 2 * i < chunk.size(); ++i) {
      std::uint16_t bits = 0;
      std::memcpy(&bits, chunk.data() + 2 * i, sizeof bits);
      // Less than half of the distance to the next number.
      const auto below = static_cast<std::uint32_t>(dtype == DType::bf16 ? random.below(0x8000) : random.below(0x1000));
      peer.push_back((dtype == DType::bf16 ? std::uint32_t{bits} << 16 : widened_f16(bits)) + below);
    }
    return bytes_of_elements(peer, 4);
  }
  if (dtype == DType::f32 && peer_dtype == DType::bf16) {
    for (std::size_t i = 0; 4 * i < chunk.size(); ++i) {
      std::uint32_t bits = 0;
      std::memcpy(&bits, chunk.data() + 4 * i, sizeof bits);
      peer.push_back((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
    }
    return bytes_of_elements(peer, 2);
  }
  return {};
}

GuardedBuffer::GuardedBuffer(std::size_t size, std::byte fill)
    : before_(kAddressSanitizer ? 1 : 65),
      size_(size),
      after_(kAddressSanitizer ? 0 : 64),
      memory_(new std::byte[before_ + size_ + after_]) {
  std::fill_n(memory_.get(), before_ + size_ + after_, kCanary);
  std::fill_n(memory_.get() + before_, size_, fill);
}

GuardedBuffer::GuardedBuffer(ConstByteSpan contents) : GuardedBuffer(contents.size()) {
  std::copy(contents.begin(), contents.end(), span().begin());
}

bool GuardedBuffer::intact() const noexcept {
  const auto is_canary = [](std::byte byte) { return byte == kCanary; };
  const std::byte* end = memory_.get() + before_ + size_;
  return std::all_of(memory_.get(), memory_.get() + before_, is_canary) && std::all_of(end, end + after_, is_canary);
}

}  // namespace bitsnap::codec
