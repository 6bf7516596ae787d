// What every codec is on the writing side. See decoder.hpp for the law that both sides keep.
//
// Encoders are stateless, immutable and shared by all threads. The bytes they write depend on data, inputs, parameters
// and the place in the tensor alone: not on the CPU level, the number of threads or what the scratch held before.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "codec/decoder.hpp"

namespace bitsnap::codec {

// What analyze() found out of a whole chunk, for encode() of the same chunk with the same inputs to go on from. Only
// the encoder that made it knows what it is.
class Analysis {
 public:
  Analysis() = default;
  Analysis(const Analysis&) = delete;
  Analysis& operator=(const Analysis&) = delete;
  virtual ~Analysis() = default;
};

// What coding a chunk is expected to cost.
struct Estimate {
  std::uint64_t payload_bytes = 0;
  std::vector<std::byte> parameters = {};              // to be shared by the tensor's chunks; empty for codecs without
  std::shared_ptr<const Analysis> analysis = nullptr;  // nullptr: there is nothing to go on from
};

class Encoder {
 public:
  Encoder() = default;
  Encoder(const Encoder&) = delete;
  Encoder& operator=(const Encoder&) = delete;
  virtual ~Encoder() = default;

  // The other side of the same codec: its id, name and accepts() hold for this one as well.
  [[nodiscard]] virtual const Decoder& decoder() const noexcept = 0;

  // Whether analyze() takes the whole chunk of this dtype for its sample and looks at parts of it of its own choice:
  // what it estimates shows in certain places only, or at a glance.
  [[nodiscard]] virtual bool analyzes_whole_chunks(DType dtype) const noexcept {
    static_cast<void>(dtype);
    return false;
  }

  // Estimates the payload of a chunk from a sample of it: `sample` holds sample_context.elements elements drawn as a
  // few runs from the chunk, the inputs of sample_context the same elements of the inputs; `elements` is the whole
  // chunk's count. nullopt: this codec cannot express the chunk. By default the sample is encoded and scaled.
  [[nodiscard]] virtual Result<std::optional<Estimate>> analyze(ConstByteSpan sample,
                                                                const ChunkContext& sample_context,
                                                                std::size_t elements, Scratch& scratch) const;

  // Size of `out` that encode() needs for any chunk of this geometry.
  [[nodiscard]] virtual std::size_t max_encoded_size(DType dtype, std::size_t elements) const noexcept = 0;

  // Encodes a chunk and returns the payload's size, or nullopt where this codec cannot express it (constant: elements
  // differ) or sees that it would not be smaller than raw. Preconditions, held by the caller: accepted dtype
  // and inputs, data.size() == context.size_bytes(), out.size() >= max_encoded_size(...), nothing overlaps. `data` is
  // private to the call: it does not change meanwhile.
  [[nodiscard]] virtual Result<std::optional<std::size_t>> encode(ConstByteSpan data, const ChunkContext& context,
                                                                  ByteSpan out, Scratch& scratch) const = 0;
};

}  // namespace bitsnap::codec
