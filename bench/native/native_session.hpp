// One engine at work on whole buffers: cut into chunks, coded on some threads, the payloads in memory that the caller
// lends and has touched. Used by one thread at a time; what encode() left is read by decode() until the next encode().
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "bench/native/native_engine.hpp"
#include "exec/executor.hpp"

namespace bitsnap::bench {

class Session {
 public:
  // The engine lives as long as the process. `threads`: 0 for as many as are usable.
  Session(const Engine& engine, DType dtype, Role role, unsigned threads);

  // What encode() needs of `arena` for so many bytes.
  [[nodiscard]] std::size_t room(std::size_t data_bytes) const noexcept;
  // The sum of the payloads. `base` is as long as `data` if the engine uses one.
  [[nodiscard]] Result<std::uint64_t> encode(ConstByteSpan data, ConstByteSpan base, ByteSpan arena);
  // Precondition: the same base and arena as of the last encode(), whose data was as long as `out`.
  [[nodiscard]] Result<void> decode(ConstByteSpan base, ConstByteSpan arena, ByteSpan out);

 private:
  struct Stored {
    std::size_t bytes = 0;
    bool raw = false;
  };
  [[nodiscard]] std::size_t chunk_bytes() const noexcept;
  [[nodiscard]] std::size_t chunk_room() const noexcept;
  [[nodiscard]] Chunk chunk(std::size_t number, ConstByteSpan data, ConstByteSpan base) const noexcept;

  const Engine& engine_;
  DType dtype_;
  std::unique_ptr<exec::Executor> executor_;
  std::vector<std::unique_ptr<Worker>> workers_;  // by slot
  std::vector<Stored> stored_;                    // by chunk
};

}  // namespace bitsnap::bench
