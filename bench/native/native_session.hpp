// Runs one coder on whole buffers: cuts them into chunks, codes these on several threads, and keeps the payloads in the
// caller's arena. One thread at a time uses a Session; decode() decodes the payloads of the last encode().
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/bytes.hpp"
#include "bench/native/native_coders.hpp"
#include "exec/executor.hpp"

namespace bitsnap::bench {

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

}  // namespace bitsnap::bench
