// Writes shortened elements: docs/spec/codecs.md, "Shortened elements". short_elements.hpp is the reading side.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/scratch.hpp"
#include "base/spread_runs.hpp"
#include "codec/short_elements.hpp"

namespace bitsnap::codec {

struct Exception {
  std::uint32_t place = 0;
  std::uint32_t bits = 0;
};

// The number of low bits to leave out of the elements of a chunk, or of a sample: the most zeros that about 1,000
// sampled elements share, except for a few exceptions if these cost less than they save. Returns 0 early if elements
// share no zeros. Only shorten() looks at all elements.
[[nodiscard]] unsigned choose_zero_bits(ConstByteSpan data, DType dtype) noexcept;

// The same in two steps, from samples: whether a glance at the elements allows that they share zeros, and then how many
// a look shows.
inline constexpr SpreadRuns kZerosGlance{.count = 4, .elements = 16, .alignment = 16};
inline constexpr SpreadRuns kZerosLook{.count = 64, .elements = 16, .alignment = 16};
[[nodiscard]] bool may_share_zeros(ConstByteSpan glance, DType dtype) noexcept;
[[nodiscard]] unsigned shared_zero_bits(ConstByteSpan look, DType dtype) noexcept;

// Shortens the elements of a chunk part by part, in any order, and collects the exceptions. Its memory comes from the
// open frame of a Scratch.
class Shortener {
 public:
  // For a chunk of `elements` elements. Precondition: floats.zero_bits is at least 1.
  [[nodiscard]] Result<void> open(const ShortFloats& floats, std::size_t elements, Scratch& scratch);

  // Shortens the elements from `first` on. Returns false if there are more exceptions than a payload can have; the
  // Shortener must not be used afterwards.
  [[nodiscard]] bool shorten(std::size_t first, ConstByteSpan elements, std::byte* shortened) noexcept;

  // The same for elements that the caller shortened; `left_out` is the OR of the bits left out.
  [[nodiscard]] bool note(std::size_t first, ConstByteSpan elements, std::uint32_t left_out) noexcept;

  // The size of the payload's head, valid after all elements are shortened.
  [[nodiscard]] std::size_t head_bytes() const noexcept;
  std::byte* write_head(std::byte* out) noexcept;  // returns its end

 private:
  ShortFloats floats_;
  std::span<Exception> room_;
  std::size_t used_ = 0;
};

// The largest head_bytes().
[[nodiscard]] constexpr std::size_t max_short_head_bytes(std::size_t elements) noexcept {
  return 1 + sizeof(std::uint32_t) + kExceptionBytes * max_exceptions(elements);
}

}  // namespace bitsnap::codec
