// Where the bytes of a new file come from: streams to encode (StreamSource), and chunks of another file to copy
// (StoredChunks). Implementations are thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>

#include <bitsnap/error.hpp>
#include <bitsnap/quantization.hpp>

#include "base/bytes.hpp"
#include "base/scratch.hpp"
#include "restore/read_context.hpp"

namespace bitsnap::save {

// The errors that quantizing a part of a stream caused.
struct Lost {
  ErrorTally reached;
  UpdateErrors updates;  // of first moments
};

// The streams of a caller's state, of a quantized state, or of a snapshot that is being rewritten.
class StreamSource {
 public:
  StreamSource() = default;
  StreamSource(const StreamSource&) = delete;
  StreamSource& operator=(const StreamSource&) = delete;
  virtual ~StreamSource() = default;

  // Fills `out` with the bytes of a stream from `offset` on. The source may use the context as working memory.
  [[nodiscard]] virtual Result<void> read(std::size_t stream, std::uint64_t offset, ByteSpan out,
                                          ReadContext& context) const = 0;

  // Like read(), called once for each chunk that is stored; adds the chunk's errors to `lost`.
  [[nodiscard]] virtual Result<void> read_to_store(std::size_t stream, std::uint64_t offset, ByteSpan out,
                                                   ReadContext& context, Lost& lost) const {
    static_cast<void>(lost);
    return read(stream, offset, out, context);
  }

  // Whether reading a few bytes of the stream is cheap.
  [[nodiscard]] virtual bool can_be_sampled(std::size_t stream) const noexcept = 0;
};

// Chunks of another file that are copied without decoding, by their number in the new file.
class StoredChunks {
 public:
  StoredChunks() = default;
  StoredChunks(const StoredChunks&) = delete;
  StoredChunks& operator=(const StoredChunks&) = delete;
  virtual ~StoredChunks() = default;

  [[nodiscard]] virtual bool contains(std::size_t number) const noexcept = 0;
  // Reads the payload into the scratch and checks its hash.
  [[nodiscard]] virtual Result<ConstByteSpan> read(std::size_t number, Scratch& scratch) const = 0;
};

}  // namespace bitsnap::save
