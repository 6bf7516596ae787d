// Where the bytes of a file that is being written come from: a caller's state, or another snapshot.
#pragma once

#include <cstddef>
#include <cstdint>

#include <bitsnap/error.hpp>
#include <bitsnap/quantization.hpp>

#include "base/bytes.hpp"
#include "base/scratch.hpp"
#include "restore/read_context.hpp"

namespace bitsnap::save {

// What a part of a stream lost before it was stored.
struct Lost {
  ErrorTally reached;
  UpdateErrors updates;  // of first moments
};

// Thread-safe.
class StreamSource {
 public:
  StreamSource() = default;
  StreamSource(const StreamSource&) = delete;
  StreamSource& operator=(const StreamSource&) = delete;
  virtual ~StreamSource() = default;

  // Fills `out` with the bytes from `offset` on of a stream. The context is free for the source to work with.
  [[nodiscard]] virtual Result<void> read(std::size_t stream, std::uint64_t offset, ByteSpan out,
                                          ReadContext& context) const = 0;

  // The same of what is to be stored, once for each part: what it lost is told as well.
  [[nodiscard]] virtual Result<void> read_to_store(std::size_t stream, std::uint64_t offset, ByteSpan out,
                                                   ReadContext& context, Lost& lost) const {
    static_cast<void>(lost);
    return read(stream, offset, out, context);
  }

  // Whether a few bytes may be read before the stream's turn at little cost.
  [[nodiscard]] virtual bool can_be_sampled(std::size_t stream) const noexcept = 0;
};

// Chunks that another file holds and that are taken over as they are stored, told by their numbers in the file. Thread-
// safe.
class StoredChunks {
 public:
  StoredChunks() = default;
  StoredChunks(const StoredChunks&) = delete;
  StoredChunks& operator=(const StoredChunks&) = delete;
  virtual ~StoredChunks() = default;

  [[nodiscard]] virtual bool contains(std::size_t number) const noexcept = 0;
  // The payload, checked against its hash, in the scratch.
  [[nodiscard]] virtual Result<ConstByteSpan> read(std::size_t number, Scratch& scratch) const = 0;
};

}  // namespace bitsnap::save
