// The elements of a chunk that is being decoded, as steps from their bases: as they are, or shortened.
#pragma once

#include <cstddef>

#include "base/bytes.hpp"
#include "codec/short_elements.hpp"

namespace bitsnap::codec {

struct SteppedElements {
  ShortFloats floats;
  ConstByteSpan base;  // as they are, not shortened, as is what is decoded
  ByteSpan out;

  [[nodiscard]] std::size_t count() const noexcept { return out.size() / element_size(floats.dtype); }
  [[nodiscard]] bool are_shortened() const noexcept { return floats.zero_bits > 0; }
};

// Room for some of them while they are shortened; nothing where none are. One part is worked on at a time.
class ShortPart {
 public:
  [[nodiscard]] Result<void> open(const SteppedElements& elements, std::size_t most, Scratch& scratch) {
    elements_ = &elements;
    if (!elements.are_shortened()) return {};
    BITSNAP_ASSIGN(base_, scratch.take(most * elements.floats.element_bytes()));
    BITSNAP_ASSIGN(out_, scratch.take(most * elements.floats.element_bytes()));
    return {};
  }

  // Where bases are, and where what is decoded goes, as the floats say. finish() takes it from there.
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
  const SteppedElements* elements_ = nullptr;
  ByteSpan base_;
  ByteSpan out_;
  std::size_t at_ = 0;
  std::size_t size_ = 0;
};

}  // namespace bitsnap::codec
