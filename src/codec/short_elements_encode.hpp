// Elements without low bits that are zero, writing: docs/spec/codecs.md, "Shortened elements". short_elements.hpp is
// the other side.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/scratch.hpp"
#include "codec/short_elements.hpp"

namespace bitsnap::codec {

struct Exception {
  std::uint32_t place = 0;
  std::uint32_t bits = 0;
};

// How many bits it is worth to leave out of the elements of a chunk, or of a sample of it: the most zeros that all
// elements of some 1,000 have, but for a few where those cost less than they save; 0 at a glance where elements have no
// zeros in common. All of the chunk is not looked at: shorten() tells.
[[nodiscard]] unsigned choose_zero_bits(ConstByteSpan data, DType dtype) noexcept;

// Shortens the elements of a chunk part by part, in any order, and keeps those that are exceptions. Its memory comes
// from a Scratch and lasts as long as the frame it was taken in.
class Shortener {
 public:
  // For a chunk of so many elements, of which floats.zero_bits, at least one, are left out.
  [[nodiscard]] Result<void> open(const ShortFloats& floats, std::size_t elements, Scratch& scratch);

  // The elements of the chunk from the `first` on. false: there are more exceptions than a payload can have, and it is
  // of no use any more.
  [[nodiscard]] bool shorten(std::size_t first, ConstByteSpan elements, std::byte* shortened) noexcept;

  // The same for elements that somebody else shortened, of which `left_out` are the bits that were left out.
  [[nodiscard]] bool note(std::size_t first, ConstByteSpan elements, std::uint32_t left_out) noexcept;

  // What a payload begins with, once all elements are shortened.
  [[nodiscard]] std::size_t head_bytes() const noexcept;
  std::byte* write_head(std::byte* out) noexcept;  // returns where it ends

 private:
  ShortFloats floats_;
  std::span<Exception> room_;
  std::size_t used_ = 0;
};

// Most that head_bytes() can be.
[[nodiscard]] constexpr std::size_t max_short_head_bytes(std::size_t elements) noexcept {
  return 1 + sizeof(std::uint32_t) + kExceptionBytes * max_exceptions(elements);
}

}  // namespace bitsnap::codec
