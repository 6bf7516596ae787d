// Coder: anything that compresses one chunk. The codecs of bitsnap, the compressors that a caller compares with them
// (baselines), and byte planes in front of either share this interface.
//
// A coder is immutable and thread-safe. A worker belongs to one thread and owns the working memory, so that a
// measurement of repeated calls does not include allocations. Snapshots are not written with coders: the planner calls
// the codecs directly.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include <bitsnap/dtype.hpp>
#include <bitsnap/error.hpp>
#include <bitsnap/tensor.hpp>

namespace bitsnap {

// At most kChunkElements elements of one tensor. `base` is as long as `data`; coders that use no base ignore it.
struct CoderChunk {
  DType dtype = DType::opaque;
  Role role = Role::other;
  std::span<const std::byte> data;
  std::span<const std::byte> base;
};

class CoderWorker {
 public:
  CoderWorker() = default;
  CoderWorker(const CoderWorker&) = delete;
  CoderWorker& operator=(const CoderWorker&) = delete;
  virtual ~CoderWorker() = default;

  // Returns the number of bytes written to `out`, which has at least max_encoded_size() bytes, or nullopt if the coder
  // cannot express this chunk.
  [[nodiscard]] virtual Result<std::optional<std::size_t>> encode(const CoderChunk& chunk,
                                                                  std::span<std::byte> out) = 0;
  // Decodes into `out`, which has the size of the original chunk. `chunk` is the one given to encode(), except that its
  // `data` is ignored.
  [[nodiscard]] virtual Result<void> decode(const CoderChunk& chunk, std::span<const std::byte> payload,
                                            std::span<std::byte> out) = 0;
};

class Coder {
 public:
  Coder() = default;
  Coder(const Coder&) = delete;
  Coder& operator=(const Coder&) = delete;
  virtual ~Coder() = default;

  [[nodiscard]] virtual std::string name() const = 0;
  [[nodiscard]] virtual bool uses_base() const noexcept { return false; }
  [[nodiscard]] virtual bool accepts(DType dtype) const noexcept = 0;
  [[nodiscard]] virtual std::size_t max_encoded_size(DType dtype, std::size_t elements) const noexcept = 0;
  [[nodiscard]] virtual std::unique_ptr<CoderWorker> make_worker() const = 0;
};

// A codec of <bitsnap/codec.hpp>, named "float_split", or "float_split+base" if it uses the base. invalid_argument for
// an unknown codec.
[[nodiscard]] Result<std::shared_ptr<const Coder>> make_codec_coder(std::string_view codec, bool with_base);

// Plane i holds byte i of every element.
enum class BytePlanes : std::uint8_t {
  plain,
  rotated,  // of the elements rotated left by one bit: one plane then holds the whole exponent of a BF16 or F32
  of_xor,   // of the XOR with the base
};

// Splits a chunk into byte planes and gives them to `coder` as one chunk of dtype u8. The name is that of `coder` with
// "+planes", or "+xor+planes" for `of_xor`: "zstd-1+planes". `plain` and `rotated` accept dtypes of at least two bytes.
[[nodiscard]] std::shared_ptr<const Coder> make_plane_coder(std::shared_ptr<const Coder> coder, BytePlanes planes);

}  // namespace bitsnap
