// Bytes that are probably those of a snapshot's chunks, in memory: of a state that was stored and may since have been
// written over. A Snapshot that some were offered to copies a chunk from there and holds the copy against the chunk's
// hash; only what does not match is decoded. Nothing here has to be true for reading to be right.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/bytes.hpp"

namespace bitsnap::restore {

// Thread-safe.
class WarmChunks {
 public:
  WarmChunks() = default;
  WarmChunks(const WarmChunks&) = delete;
  WarmChunks& operator=(const WarmChunks&) = delete;
  virtual ~WarmChunks() = default;

  // Fills `out`, which has the chunk's size, with what should be its decoded bytes; false where they are not in memory.
  [[nodiscard]] virtual bool copy(std::size_t stream, std::uint64_t chunk, ByteSpan out) const = 0;
  // Told of what was found and was something else, from several threads.
  virtual void note_mismatch(std::size_t stream, std::uint64_t chunk) const noexcept = 0;
};

}  // namespace bitsnap::restore
