// Scratch allocates blocks of at least 1 MiB and keeps them until it is destroyed.
#include "base/scratch.hpp"

#include <algorithm>
#include <new>

namespace bitsnap {
namespace {

constexpr std::size_t kAlignment = 64;
constexpr std::size_t kMinBlockBytes = std::size_t{1} << 20;

}  // namespace

void Scratch::FreeBlock::operator()(std::byte* block) const noexcept {
  ::operator delete(block, std::align_val_t{kAlignment});
}

Result<ByteSpan> Scratch::take(std::size_t size_bytes) {
  const std::size_t needed = (size_bytes + kAlignment - 1) / kAlignment * kAlignment;
  if (needed < size_bytes) return fail(ErrorKind::resource_exhausted, "working memory: size overflows");
  while (block_ < blocks_.size()) {
    Block& block = blocks_[block_];
    if (block.size - used_ >= needed) {
      const ByteSpan taken(block.bytes.get() + used_, size_bytes);
      used_ += needed;
      return taken;
    }
    ++block_;
    used_ = 0;
  }
  const std::size_t size = std::max(needed, kMinBlockBytes);
  auto* bytes = static_cast<std::byte*>(::operator new(size, std::align_val_t{kAlignment}, std::nothrow));
  if (bytes == nullptr) {
    return fail(ErrorKind::resource_exhausted,
                "working memory: " + std::to_string(size) + " bytes cannot be allocated");
  }
  blocks_.push_back(Block{std::unique_ptr<std::byte, FreeBlock>(bytes), size});
  used_ = needed;
  return ByteSpan(bytes, size_bytes);
}

std::size_t Scratch::capacity_bytes() const noexcept {
  std::size_t total = 0;
  for (const Block& block : blocks_) total += block.size;
  return total;
}

}  // namespace bitsnap
