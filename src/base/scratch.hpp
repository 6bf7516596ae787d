// Working memory of one worker: allocated piece by piece, freed together, reused for the next item.
//
// A Scratch belongs to one thread at a time. A span is valid until the frame in which it was taken closes; growing
// never moves a span. Memory is 64-byte aligned and not initialised.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "base/bytes.hpp"
#include "base/checked.hpp"

namespace bitsnap {

class Scratch {
 public:
  Scratch() = default;
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  // Fails with resource_exhausted.
  [[nodiscard]] Result<ByteSpan> take(std::size_t size_bytes);

  template <typename T>
  [[nodiscard]] Result<std::span<T>> take_array(std::size_t count) {
    const auto size_bytes = checked_multiply(count, sizeof(T));
    if (!size_bytes) return fail(ErrorKind::resource_exhausted, "working memory: size overflows");
    BITSNAP_ASSIGN(const ByteSpan bytes, take(*size_bytes));
    return std::span<T>(reinterpret_cast<T*>(bytes.data()), count);
  }

  // Frees everything but keeps the memory. No frame may be open.
  void reset() noexcept {
    block_ = 0;
    used_ = 0;
  }

  // Frees on destruction what was taken since its construction. Frames nest.
  class Frame {
   public:
    explicit Frame(Scratch& scratch) noexcept : scratch_(scratch), block_(scratch.block_), used_(scratch.used_) {}
    ~Frame() {
      scratch_.block_ = block_;
      scratch_.used_ = used_;
    }
    Frame(const Frame&) = delete;
    Frame& operator=(const Frame&) = delete;

   private:
    Scratch& scratch_;
    std::size_t block_;
    std::size_t used_;
  };

  [[nodiscard]] std::size_t capacity_bytes() const noexcept;

 private:
  struct FreeBlock {
    void operator()(std::byte* block) const noexcept;
  };
  struct Block {
    std::unique_ptr<std::byte, FreeBlock> bytes;
    std::size_t size = 0;
  };

  std::vector<Block> blocks_;
  std::size_t block_ = 0;  // the block in use
  std::size_t used_ = 0;   // bytes used of this block
};

}  // namespace bitsnap
