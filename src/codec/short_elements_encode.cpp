// Writes shortened elements: docs/spec/codecs.md, "Shortened elements".
#include "codec/short_elements_encode.hpp"

#include <algorithm>
#include <array>
#include <bit>

namespace bitsnap::codec {
namespace {

// Elements that are searched for exceptions together.
constexpr std::size_t kPartElements = 1024;

std::uint32_t element_at(ConstByteSpan data, std::size_t i, std::size_t element_bytes) noexcept {
  return element_bytes == 2 ? load_le<std::uint16_t>(data.data() + 2 * i) : load_le<std::uint32_t>(data.data() + 4 * i);
}

// Histogram of the trailing zeros of the nonzero elements, clamped to the mantissa bits.
struct ZeroCounts {
  std::array<std::uint32_t, 24> counts{};
  std::uint32_t total = 0;

  ZeroCounts(ConstByteSpan data, DType dtype) noexcept {
    const std::size_t element_bytes = element_size(dtype);
    const unsigned mantissa_bits = mantissa_bits_of(dtype);
    const std::uint32_t magnitude = element_bytes == 2 ? 0x7fff : 0x7fffffff;
    for (std::size_t i = 0; i < data.size() / element_bytes; ++i) {
      const std::uint32_t bits = element_at(data, i, element_bytes) & magnitude;
      if (bits == 0) continue;
      ++counts[std::min(static_cast<unsigned>(std::countr_zero(bits)), mantissa_bits)];
      ++total;
    }
  }
};

}  // namespace

unsigned choose_zero_bits(ConstByteSpan data, DType dtype) noexcept {
  std::array<std::byte, kZerosLook.total() * sizeof(std::uint32_t)> room;
  const std::size_t element_bytes = element_size(dtype);
  const auto sample = [&](const SpreadRuns& runs) {
    const std::size_t elements = runs.gather(data.data(), data.size() / element_bytes, element_bytes, room.data());
    return ConstByteSpan(room).first(elements * element_bytes);
  };
  return may_share_zeros(sample(kZerosGlance), dtype) ? shared_zero_bits(sample(kZerosLook), dtype) : 0;
}

bool may_share_zeros(ConstByteSpan glance, DType dtype) noexcept {
  const ZeroCounts zeros(glance, dtype);
  return zeros.counts[0] * 8 <= zeros.total;
}

unsigned shared_zero_bits(ConstByteSpan look, DType dtype) noexcept {
  const ZeroCounts zeros(look, dtype);
  const unsigned mantissa_bits = mantissa_bits_of(dtype);
  unsigned best = 0;
  std::int64_t most_saved = 8;  // the least saving that pays for the head
  std::uint32_t exceptions = 0;
  for (unsigned zero_bits = 1; zero_bits <= mantissa_bits; ++zero_bits) {
    exceptions += zeros.counts[zero_bits - 1];
    if (exceptions * kElementsPerException > zeros.total) break;
    const std::int64_t saved = static_cast<std::int64_t>(zeros.total) * zero_bits -
                               static_cast<std::int64_t>(exceptions) * 8 * std::int64_t{kExceptionBytes};
    if (saved <= most_saved) continue;
    most_saved = saved;
    best = zero_bits;
  }
  return best;
}

Result<void> Shortener::open(const ShortFloats& floats, std::size_t elements, Scratch& scratch) {
  floats_ = floats;
  used_ = 0;
  BITSNAP_ASSIGN(room_, scratch.take_array<Exception>(max_exceptions(elements)));
  return {};
}

bool Shortener::shorten(std::size_t first, ConstByteSpan elements, std::byte* shortened) noexcept {
  const std::size_t element_bytes = element_size(floats_.dtype);
  const std::size_t part_bytes = kPartElements * element_bytes;
  for (std::size_t at = 0; at < elements.size(); at += part_bytes) {
    const ConstByteSpan part = elements.subspan(at, std::min(part_bytes, elements.size() - at));
    const std::size_t before = at / element_bytes;
    std::byte* const to = shortened + before * floats_.element_bytes();
    if (!note(first + before, part, shorten_elements(part, floats_, to))) return false;
  }
  return true;
}

bool Shortener::note(std::size_t first, ConstByteSpan elements, std::uint32_t left_out) noexcept {
  if (left_out == 0) return true;
  const std::size_t element_bytes = element_size(floats_.dtype);
  const std::uint32_t mask = (std::uint32_t{1} << floats_.zero_bits) - 1;
  for (std::size_t i = 0; i < elements.size() / element_bytes; ++i) {
    const std::uint32_t bits = element_at(elements, i, element_bytes) & mask;
    if (bits == 0) continue;
    if (used_ == room_.size()) return false;
    room_[used_++] = {.place = static_cast<std::uint32_t>(first + i), .bits = bits};
  }
  return true;
}

std::size_t Shortener::head_bytes() const noexcept {
  return used_ == 0 ? 1 : 1 + sizeof(std::uint32_t) + kExceptionBytes * used_;
}

std::byte* Shortener::write_head(std::byte* out) noexcept {
  *out++ = static_cast<std::byte>(kShortFlag | (used_ > 0 ? kShortExceptions : 0) | floats_.zero_bits);
  if (used_ == 0) return out;
  store_le(out, static_cast<std::uint32_t>(used_));
  out += sizeof(std::uint32_t);
  std::ranges::sort(room_.first(used_), {}, &Exception::place);
  for (const Exception& exception : room_.first(used_)) {
    store_le(out, exception.place);
    store_le(out + sizeof(std::uint32_t), exception.bits);
    out += kExceptionBytes;
  }
  return out;
}

}  // namespace bitsnap::codec
