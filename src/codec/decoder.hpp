// The reading side of a codec.
//
// A codec turns one chunk into a payload and back, always without loss: decode(encode(x, inputs), inputs) == x for all
// bit patterns. A codec sees bytes and geometry: no names, no files, no chunks other than the inputs that it is given.
// Decoders are stateless, immutable and shared by all threads; the caller provides the working memory.
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

// The largest number of inputs of one chunk.
inline constexpr std::size_t kMaxInputs = 4;

enum class InputKind : std::uint8_t {
  base,  // the same elements in an earlier snapshot
  peer,  // the elements at the same places in another tensor of this snapshot
};

// The decoded elements that correspond to those of a chunk: `bytes` holds as many elements of `dtype` as the chunk has.
struct Input {
  InputKind kind = InputKind::base;
  DType dtype = DType::opaque;
  ConstByteSpan bytes;
};

// The geometry of one chunk and its inputs, the same for encoding and decoding. What only encoders use belongs in
// EncodeContext (encoder.hpp).
struct ChunkContext {
  DType dtype = DType::opaque;
  std::size_t elements = 0;  // 1 to kChunkElements
  std::span<const Input> inputs = {};
  ConstByteSpan parameters = {};  // a parameter set that check_parameters() accepted; today all codecs' are empty

  [[nodiscard]] std::size_t size_bytes() const noexcept { return elements * element_size(dtype); }
};

class Decoder {
 public:
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;
  virtual ~Decoder() = default;

  [[nodiscard]] CodecId id() const noexcept { return id_; }
  [[nodiscard]] std::string_view name() const noexcept { return name_; }        // "float_split"
  [[nodiscard]] std::string_view summary() const noexcept { return summary_; }  // one line for people

  // Whether the codec takes chunks of this dtype with inputs of these kinds, dtypes and number.
  [[nodiscard]] virtual bool accepts(DType dtype, std::span<const Input> inputs) const noexcept = 0;

  // Fails with corrupt if the bytes are not a parameter set of this codec. Codecs without parameters accept only the
  // empty set.
  [[nodiscard]] virtual Result<void> check_parameters(ConstByteSpan parameters) const;

  // The caller guarantees: accepts(context.dtype, context.inputs), checked parameters, inputs of the right size,
  // out.size() == context.size_bytes(), and that nothing overlaps. Given any payload at all, decode() either fails with
  // corrupt or truncated, or fills `out` entirely. It reads and writes only inside the spans, and its time is bounded
  // by the size of `out`.
  [[nodiscard]] virtual Result<void> decode(ConstByteSpan payload, const ChunkContext& context, ByteSpan out,
                                            Scratch& scratch) const = 0;

 protected:
  // The texts must be literals.
  Decoder(CodecId id, std::string_view name, std::string_view summary) noexcept
      : id_(id), name_(name), summary_(summary) {}

 private:
  CodecId id_;
  std::string_view name_;
  std::string_view summary_;
};

// The only object of a decoder's or encoder's class, which lives as long as the process.
template <typename Codec>
[[nodiscard]] const Codec& only() noexcept {
  static const Codec codec;
  return codec;
}

}  // namespace bitsnap::codec
