// What every codec is on the reading side.
//
// A codec turns one chunk into a payload and back, always without loss: decode(encode(x, inputs), inputs) == x for all
// bit patterns. It sees bytes and geometry only: no names, no files, no other chunks than the inputs it is handed.
// Decoders are stateless, immutable and shared by all threads; working memory comes from the caller.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include <bitsnap/dtype.hpp>
#include <bitsnap/error.hpp>

#include "base/bytes.hpp"
#include "base/scratch.hpp"
#include "codec/codec_id.hpp"

namespace bitsnap::codec {

class Analysis;  // encoder.hpp

// Most inputs that one chunk can have.
inline constexpr std::size_t kMaxInputs = 4;

enum class InputKind : std::uint8_t {
  base,  // the same elements in an earlier snapshot
  peer,  // the elements beside these in another tensor of this snapshot
};

// A decoded chunk that covers the same elements; `bytes` holds as many elements of `dtype` as the chunk has of its own.
struct Input {
  InputKind kind = InputKind::base;
  DType dtype = DType::opaque;
  ConstByteSpan bytes;
};

// Where a chunk stands in its tensor taken as a matrix. For the writing side: what a decoder needs of it stands in the
// payload.
struct RowPlace {
  std::size_t row_elements = 0;  // 0: not known, or of no use
  std::size_t first_column = 0;  // of the chunk's first element
};

// What the elements of a chunk were made multiples of: a * sqrt(v) + b, with the v beside each in the chunk's last
// input.
struct Lattice {
  float a = 0;
  float b = 0;
};

// The least and the greatest number of a cluster that elements were quantized by. Of several, each is above the one
// before, -0 being below 0.
struct ClusterExtent {
  float least = 0;
  float greatest = 0;
};

// Geometry and surroundings of one chunk, the same for encoding and decoding.
struct ChunkContext {
  DType dtype = DType::opaque;
  std::size_t elements = 0;  // 1 to kChunkElements
  std::span<const Input> inputs;
  ConstByteSpan parameters;  // empty, or a parameter set that check_parameters accepted
  // For encoders; decoders do not look at them.
  RowPlace rows = {};
  std::optional<Lattice> lattice = {};
  std::span<const ClusterExtent> clusters = {};  // those of the tensor; empty: nobody said them
  const Analysis* analysis = nullptr;            // what the same encoder's analyze() found out of this chunk

  [[nodiscard]] std::size_t size_bytes() const noexcept { return elements * element_size(dtype); }
};

class Decoder {
 public:
  Decoder() = default;
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;
  virtual ~Decoder() = default;

  [[nodiscard]] virtual CodecId id() const noexcept = 0;
  [[nodiscard]] virtual std::string_view name() const noexcept = 0;     // "float_split"
  [[nodiscard]] virtual std::string_view summary() const noexcept = 0;  // one line for people

  // Whether chunks of this dtype with these inputs can be coded at all. Looks at kinds, dtypes and the number of
  // inputs.
  [[nodiscard]] virtual bool accepts(DType dtype, std::span<const Input> inputs) const noexcept = 0;

  // corrupt unless the bytes are a parameter set of this codec. Codecs without parameters accept the empty one alone.
  [[nodiscard]] virtual Result<void> check_parameters(ConstByteSpan parameters) const;

  // Preconditions, held by the caller: accepts(context.dtype, context.inputs), parameters checked, inputs of the right
  // size, out.size() == context.size_bytes(), nothing overlaps. Any payload at all gives an error (corrupt or
  // truncated) or fills `out` entirely; never reads or writes outside the spans; time is bounded by the output's size.
  [[nodiscard]] virtual Result<void> decode(ConstByteSpan payload, const ChunkContext& context, ByteSpan out,
                                            Scratch& scratch) const = 0;
};

}  // namespace bitsnap::codec
