// Fuzz target of the lane coder: any bytes decode to an error or to all elements, identically on every CPU level, and
// any elements round-trip.
//
// Input: byte 0 selects the operation (bits 0-1: decode, encode, damage) and the elements (bit 2: 4 bytes, bit 3:
// rotated, bit 5: 1 byte, bit 4: bit 16 of the count); bytes 1-2 are the count minus 1. Then follows the payload to
// decode; or the bytes from which symbols and lower bytes are made; or 16 such bytes and, in four bytes each, the
// places and values of damage to the payload of these elements.
#include <cstdlib>
#include <memory>
#include <vector>

#include <bitsnap/cpu.hpp>

#include "entropy/split_elements_encode.hpp"

namespace {

using bitsnap::ByteSpan;
using bitsnap::ConstByteSpan;
using bitsnap::CpuLevel;
using bitsnap::Scratch;
using bitsnap::entropy::SplitShape;
using Bytes = std::vector<std::byte>;

constexpr std::size_t kSeedBytes = 16;

void require(bool condition) {
  if (!condition) std::abort();
}

// A heap block of exactly this size, so that AddressSanitizer sees every access beyond it.
class ExactBuffer {
 public:
  explicit ExactBuffer(ConstByteSpan contents) : bytes_(new std::byte[contents.size()]), size_(contents.size()) {
    std::copy(contents.begin(), contents.end(), bytes_.get());
  }
  [[nodiscard]] ConstByteSpan span() const noexcept { return {bytes_.get(), size_}; }

 private:
  std::unique_ptr<std::byte[]> bytes_;
  std::size_t size_;
};

// Symbols are the seed's bytes, or near its first byte. Lower bytes are random; the coder refuses elements with others.
Bytes make_elements(ConstByteSpan seed, const SplitShape& shape) {
  Bytes elements(shape.elements * shape.element_bytes);
  std::uint64_t noise = 0x9E3779B97F4A7C15;
  for (std::size_t i = 0; i < shape.elements; ++i) {
    noise ^= noise << 13;
    noise ^= noise >> 7;
    noise ^= noise << 17;
    unsigned symbol = 120;
    if (!seed.empty()) {
      const bool own = (noise >> 40 & 3) != 0;
      symbol = std::to_integer<unsigned>(seed[own ? noise % seed.size() : 0]) & (own ? 15U : 255U);
    }
    const unsigned width = static_cast<unsigned>(8 * shape.element_bytes);
    const auto low = static_cast<std::uint32_t>(noise >> 8) & ((1U << (width - 8)) - 1);
    std::uint32_t element = symbol << (width - 8) | low;
    if (shape.rotated) element = element >> 1 | (element & 1) << (width - 1);
    std::memcpy(elements.data() + i * shape.element_bytes, &element, shape.element_bytes);
  }
  return elements;
}

// Decodes at every level, requires equal results, and returns the output, or nothing on failure.
std::optional<Bytes> decode_any(ConstByteSpan bytes, const SplitShape& shape, Scratch& scratch) {
  const ExactBuffer payload(bytes);
  std::optional<Bytes> expected;
  for (const CpuLevel level : bitsnap::kCpuLevels) {
    if (!bitsnap::force_cpu_level(level)) continue;
    std::optional<Bytes> elements(shape.elements * shape.element_bytes);
    if (!bitsnap::entropy::decode_split(payload.span(), shape, *elements, scratch)) elements.reset();
    if (level == CpuLevel::scalar) expected = elements;
    require(elements == expected);
  }
  return expected;
}

std::optional<Bytes> round_trip(const Bytes& elements, const SplitShape& shape, Scratch& scratch) {
  std::optional<Bytes> expected;
  for (const CpuLevel level : bitsnap::kCpuLevels) {
    if (!bitsnap::force_cpu_level(level)) continue;
    Bytes encoded(bitsnap::entropy::max_split_size(shape));
    const auto size = bitsnap::entropy::encode_split(elements, shape, encoded, scratch);
    require(size.has_value());
    encoded.resize(size->value_or(0));
    if (level == CpuLevel::scalar && *size) expected = encoded;
    require(size->has_value() == expected.has_value());
    require(!expected || encoded == *expected);
  }
  if (expected) require(decode_any(*expected, shape, scratch) == elements);
  return expected;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static Scratch scratch;
  if (size < 3) return 0;
  const bool narrow = (data[0] & 32U) != 0;
  const SplitShape shape{.elements = 1 + (data[1] | std::size_t{data[2]} << 8U | std::size_t{data[0] & 16U} << 12U),
                         .element_bytes = narrow ? 1U : ((data[0] & 4U) != 0 ? 4U : 2U),
                         .rotated = !narrow && (data[0] & 8U) != 0,
                         .beside_bits = narrow ? 24U : 0U};
  ConstByteSpan rest = std::as_bytes(std::span(data + 3, size - 3));
  if ((data[0] & 3U) == 0) {
    (void)decode_any(rest, shape, scratch);
    return 0;
  }
  const bool damages = (data[0] & 2U) != 0;
  const ConstByteSpan seed = damages ? rest.first(std::min(rest.size(), kSeedBytes)) : rest;
  std::optional<Bytes> payload = round_trip(make_elements(seed, shape), shape, scratch);
  if (!payload || !damages) return 0;
  for (rest = rest.subspan(seed.size()); rest.size() >= 4; rest = rest.subspan(4)) {
    // Counted from the end, where the tables, streams and states are.
    const std::size_t place = bitsnap::load_le<std::uint32_t>(rest.data()) >> 8;
    (*payload)[payload->size() - 1 - place % payload->size()] = rest[0];
  }
  (void)decode_any(*payload, shape, scratch);
  return 0;
}
