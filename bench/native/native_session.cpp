// Codes chunks in parallel; each has its own place in the arena.
#include "bench/native/native_session.hpp"

#include <algorithm>
#include <cstring>

#include "base/checked.hpp"

namespace bitsnap::bench {

Session::Session(const Coder& coder, DType dtype, Role role, unsigned threads)
    : coder_(coder), dtype_(dtype), role_(role), executor_(exec::make_executor(threads)) {
  for (unsigned i = 0; i < executor_->threads(); ++i) workers_.push_back(coder.make_worker());
}

std::size_t Session::chunk_bytes() const noexcept { return kChunkElements * element_size(dtype_); }

std::size_t Session::chunk_room() const noexcept {
  constexpr std::size_t kAlignment = 64;
  const std::size_t most = std::max(coder_.max_encoded_size(dtype_, kChunkElements), chunk_bytes());
  return divide_up(most, kAlignment) * kAlignment;
}

std::size_t Session::room(std::size_t data_bytes) const noexcept {
  return divide_up(data_bytes, chunk_bytes()) * chunk_room();
}

CoderChunk Session::chunk(std::size_t number, ConstByteSpan data, ConstByteSpan base) const noexcept {
  const std::size_t begin = number * chunk_bytes();
  const std::size_t size = std::min(chunk_bytes(), data.size() - begin);
  CoderChunk made{.dtype = dtype_, .role = role_, .data = data.subspan(begin, size), .base = {}};
  if (coder_.uses_base()) made.base = base.subspan(begin, size);
  return made;
}

Result<std::uint64_t> Session::encode(ConstByteSpan data, ConstByteSpan base, ByteSpan arena) {
  if (arena.size() < room(data.size()) || (coder_.uses_base() && base.size() != data.size())) {
    return fail(ErrorKind::invalid_argument, coder_.name() + ": arena or base have the wrong size");
  }
  stored_.assign(divide_up(data.size(), chunk_bytes()), {});
  BITSNAP_TRY(executor_->run(stored_.size(), workers_.size(), [&](std::size_t i, std::size_t slot) -> Result<void> {
    const CoderChunk piece = chunk(i, data, base);
    const ByteSpan out = arena.subspan(i * chunk_room(), chunk_room());
    BITSNAP_ASSIGN(const auto size, workers_[slot]->encode(piece, out));
    if (!size) std::memcpy(out.data(), piece.data.data(), piece.data.size());
    stored_[i] = {.bytes = size.value_or(piece.data.size()), .raw = !size};
    return {};
  }));
  std::uint64_t total = 0;
  for (const Stored& stored : stored_) total += stored.bytes;
  return total;
}

Result<void> Session::decode(ConstByteSpan base, ConstByteSpan arena, ByteSpan out) {
  if (stored_.size() != divide_up(out.size(), chunk_bytes())) {
    return fail(ErrorKind::invalid_argument, coder_.name() + ": the last encoding had another size");
  }
  return executor_->run(stored_.size(), workers_.size(), [&](std::size_t i, std::size_t slot) -> Result<void> {
    const CoderChunk piece = chunk(i, out, base);
    const ByteSpan to = out.subspan(i * chunk_bytes(), piece.data.size());
    const ConstByteSpan payload = arena.subspan(i * chunk_room(), stored_[i].bytes);
    if (!stored_[i].raw) return workers_[slot]->decode(piece, payload, to);
    std::memcpy(to.data(), payload.data(), payload.size());
    return {};
  });
}

}  // namespace bitsnap::bench
