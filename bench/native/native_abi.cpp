// The C interface that bench/native_library.py loads: coders by name, sessions, and the last error as text. A session
// runs one coder on whole buffers: it cuts them into chunks, codes these on several threads, and keeps the payloads in
// the caller's arena, each chunk in a place of its own. It decodes the payloads of its last encoding.
//
// Not thread-safe; a session uses threads of its own. Pointers come from numpy arrays of the given sizes.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include <bitsnap/cpu.hpp>

#include "base/bytes.hpp"
#include "base/checked.hpp"
#include "base/try.hpp"
#include "bench/native/native_coders.hpp"
#include "exec/executor.hpp"

namespace bitsnap::bench {
namespace {

class Session {
 public:
  // The coder lives as long as the process. `threads`: 0 for all usable ones.
  Session(const Coder& coder, DType dtype, Role role, unsigned threads);

  // Size of the arena that encode() needs for `data_bytes`.
  [[nodiscard]] std::size_t room(std::size_t data_bytes) const noexcept;
  // Returns the sum of the payloads' sizes. `base` is as long as `data` if the coder uses one.
  [[nodiscard]] Result<std::uint64_t> encode(ConstByteSpan data, ConstByteSpan base, ByteSpan arena);
  // Precondition: base and arena are those of the last encode(), whose data was as long as `out`.
  [[nodiscard]] Result<void> decode(ConstByteSpan base, ConstByteSpan arena, ByteSpan out);

 private:
  struct Stored {
    std::size_t bytes = 0;
    bool raw = false;
  };
  [[nodiscard]] std::size_t chunk_bytes() const noexcept;
  [[nodiscard]] std::size_t chunk_room() const noexcept;
  [[nodiscard]] CoderChunk chunk(std::size_t number, ConstByteSpan data, ConstByteSpan base) const noexcept;

  const Coder& coder_;
  DType dtype_;
  Role role_;
  std::unique_ptr<exec::Executor> executor_;
  std::vector<std::unique_ptr<CoderWorker>> workers_;  // by slot
  std::vector<Stored> stored_;                         // by chunk
};

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

}  // namespace
}  // namespace bitsnap::bench

namespace {

using bitsnap::ByteSpan;
using bitsnap::ConstByteSpan;
using bitsnap::bench::Session;

std::string& last_text() {
  static std::string text;
  return text;
}

ConstByteSpan bytes(const void* data, std::uint64_t size) noexcept {
  return {static_cast<const std::byte*>(data), data == nullptr ? 0 : static_cast<std::size_t>(size)};
}

ByteSpan writable(void* data, std::uint64_t size) noexcept {
  return {static_cast<std::byte*>(data), static_cast<std::size_t>(size)};
}

const bitsnap::Coder* coder_named(const std::string& name) {
  const auto coders = bitsnap::bench::all_coders();
  const auto found = std::ranges::find_if(coders, [&](const auto& coder) { return coder->name() == name; });
  return found == coders.end() ? nullptr : found->get();
}

}  // namespace

extern "C" {

// A line each: name, a tab, "base" or nothing.
const char* bitsnap_bench_coders() {
  last_text().clear();
  for (const auto& coder : bitsnap::bench::all_coders()) {
    last_text() += coder->name() + "\t" + (coder->uses_base() ? "base" : "") + "\n";
  }
  return last_text().c_str();
}

const char* bitsnap_bench_cpu_level() { return bitsnap::cpu_level_name(bitsnap::cpu_level()).data(); }

const char* bitsnap_bench_error() { return last_text().c_str(); }

int bitsnap_bench_accepts(const char* coder, const char* dtype) {
  const auto* found = coder_named(coder);
  return found != nullptr && found->accepts(bitsnap::dtype_from_name(dtype)) ? 1 : 0;
}

// nullptr for an unknown name.
void* bitsnap_bench_open(const char* coder, const char* dtype, const char* role, unsigned threads) {
  const auto* found = coder_named(coder);
  if (found == nullptr) return nullptr;
  return new Session(*found, bitsnap::dtype_from_name(dtype),
                     bitsnap::role_from_name(role).value_or(bitsnap::Role::other), threads);
}

void bitsnap_bench_close(void* session) { delete static_cast<Session*>(session); }

std::uint64_t bitsnap_bench_room(void* session, std::uint64_t size) {
  return static_cast<Session*>(session)->room(static_cast<std::size_t>(size));
}

// -1 for an error.
std::int64_t bitsnap_bench_encode(void* session, const void* data, const void* base, std::uint64_t size, void* arena,
                                  std::uint64_t arena_size) {
  const auto encoded =
      static_cast<Session*>(session)->encode(bytes(data, size), bytes(base, size), writable(arena, arena_size));
  if (encoded) return static_cast<std::int64_t>(*encoded);
  last_text() = encoded.error().message();
  return -1;
}

int bitsnap_bench_decode(void* session, const void* base, void* out, std::uint64_t size, const void* arena,
                         std::uint64_t arena_size) {
  const auto decoded =
      static_cast<Session*>(session)->decode(bytes(base, size), bytes(arena, arena_size), writable(out, size));
  if (decoded) return 0;
  last_text() = decoded.error().message();
  return -1;
}

}  // extern "C"
