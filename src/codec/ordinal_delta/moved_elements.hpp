// The elements of a chunk while it is decoded from deltas, shortened or not.
#pragma once

#include <cstddef>

#include "base/bytes.hpp"
#include "codec/short_elements.hpp"

namespace bitsnap::codec {

struct MovedElements {
  ShortFloats floats;
  ConstByteSpan base;  // not shortened, like the output
  ByteSpan out;

  [[nodiscard]] std::size_t count() const noexcept { return out.size() / element_size(floats.dtype); }
  [[nodiscard]] bool are_shortened() const noexcept { return floats.zero_bits > 0; }
};

// A buffer for one part of shortened elements; empty if elements are not shortened.
class ShortPart {
 public:
  [[nodiscard]] Result<void> open(const MovedElements& elements, std::size_t most, Scratch& scratch) {
    elements_ = &elements;
    if (!elements.are_shortened()) return {};
    BITSNAP_ASSIGN(base_, scratch.take(most * elements.floats.element_bytes()));
    BITSNAP_ASSIGN(out_, scratch.take(most * elements.floats.element_bytes()));
    return {};
  }

  // The bases, and the place of the output, in the form of the floats. finish() moves the output to the chunk.
  struct Part {
    const std::byte* base;
    std::byte* out;
  };
  [[nodiscard]] Part begin(std::size_t first, std::size_t count) noexcept {
    const std::size_t width = element_size(elements_->floats.dtype);
    at_ = first * width;
    size_ = count * width;
    if (!elements_->are_shortened()) return {elements_->base.data() + at_, elements_->out.data() + at_};
    shorten_elements(elements_->base.subspan(at_, size_), elements_->floats, base_.data());
    return {base_.data(), out_.data()};
  }
  void finish() const noexcept {
    if (!elements_->are_shortened()) return;
    lengthen_elements(out_.data(), elements_->floats, elements_->out.subspan(at_, size_));
  }

 private:
  const MovedElements* elements_ = nullptr;
  ByteSpan base_;
  ByteSpan out_;
  std::size_t at_ = 0;
  std::size_t size_ = 0;
};

}  // namespace bitsnap::codec
