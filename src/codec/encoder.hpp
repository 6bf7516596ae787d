// The writing side of a codec. decoder.hpp states what both sides guarantee.
//
// Encoders are stateless, immutable and shared by all threads. The bytes that they write depend only on data, inputs
// and EncodeContext, not on the CPU level, the number of threads or what the scratch held before.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "codec/clustered/cluster_extent.hpp"
#include "codec/decoder.hpp"

namespace bitsnap::codec {

// The position of a chunk in its tensor, seen as a matrix.
struct RowPlace {
  std::size_t row_elements = 0;  // 0: unknown, or the tensor has no rows
  std::size_t first_column = 0;  // of the chunk's first element
};

// The elements of a chunk are multiples of a * sqrt(v) + b, where v is the element at the same place in the chunk's
// last input.
struct Lattice {
  float a = 0;
  float b = 0;
};

// What Encoder::analyze() found in a whole chunk, so that encode() of the same chunk with the same inputs need not
// search again. Only the encoder that made an Analysis knows its type.
class Analysis {
 public:
  Analysis() = default;
  Analysis(const Analysis&) = delete;
  Analysis& operator=(const Analysis&) = delete;
  virtual ~Analysis() = default;
};

// A chunk's context, and what only the writer knows. The payload contains the parts that decoders need.
struct EncodeContext : ChunkContext {
  RowPlace rows = {};
  std::optional<Lattice> lattice = {};           // nullopt: the elements are not known to be multiples
  std::span<const ClusterExtent> clusters = {};  // of the tensor, if it was quantized to clusters
  const Analysis* analysis = nullptr;            // by the same encoder; nullptr: encode() analyzes the chunk itself
};

// nullopt: the codec cannot express the chunk, or the payload would not be smaller than it.
using PayloadSize = std::optional<std::size_t>;

struct Estimate {
  std::uint64_t payload_bytes = 0;
  std::shared_ptr<const Analysis> analysis = nullptr;  // nullptr: encode() would gain nothing from it
  bool explains_chunk = false;  // the codec found the arithmetic that made the chunk: no other codec comes near
};

class Encoder {
 public:
  Encoder(const Encoder&) = delete;
  Encoder& operator=(const Encoder&) = delete;
  virtual ~Encoder() = default;

  // The other side of the same codec: its id, name and accepts() hold for this side, too.
  [[nodiscard]] const Decoder& decoder() const noexcept { return decoder_; }

  // Whether analyze() wants whole chunks of this dtype and samples them itself. True for codecs that look for something
  // that a sample of a few runs does not show.
  [[nodiscard]] virtual bool analyzes_whole_chunks(DType dtype) const noexcept {
    static_cast<void>(dtype);
    return false;
  }

  // Estimates the payload of a chunk of `elements` elements. `sample` holds sample_context.elements of them, drawn as a
  // few runs; the inputs of sample_context hold the same elements of the inputs. Returns nullopt if the codec cannot
  // express the chunk. The default encodes the sample and scales its size.
  [[nodiscard]] virtual Result<std::optional<Estimate>> analyze(ConstByteSpan sample,
                                                                const EncodeContext& sample_context,
                                                                std::size_t elements, Scratch& scratch) const;

  // The size of `out` that encode() needs for any chunk of this geometry; by default the size of the chunk.
  [[nodiscard]] virtual std::size_t max_encoded_size(DType dtype, std::size_t elements) const noexcept {
    return elements * element_size(dtype);
  }

  // Encodes a chunk and returns the payload's size. The caller guarantees: accepted dtype and inputs, data.size() ==
  // context.size_bytes(), out.size() >= max_encoded_size(...), that nothing overlaps, and that no other thread writes
  // to `data` during the call.
  [[nodiscard]] virtual Result<PayloadSize> encode(ConstByteSpan data, const EncodeContext& context, ByteSpan out,
                                                   Scratch& scratch) const = 0;

 protected:
  explicit Encoder(const Decoder& decoder) noexcept : decoder_(decoder) {}

 private:
  const Decoder& decoder_;
};

}  // namespace bitsnap::codec
