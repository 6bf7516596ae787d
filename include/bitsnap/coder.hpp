// Coder: anything that compresses one chunk. bitsnap's codecs, compressors that a caller brings along to compare with
// them (baselines), and byte planes in front of any of those share this interface.
//
// A coder is immutable and may be used by all threads. A worker belongs to one thread and holds its working memory, so
// that a measurement of repeated calls includes no allocation that a careful user would avoid. Snapshots are not
// written with coders: the planner calls the codecs directly.
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

// At most kChunkElements elements. Coders that use no base ignore `base`; for others it is as long as `data`.
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

  // Returns the number of bytes written to `out`, which has max_encoded_size() bytes; nullopt if the coder cannot
  // express this chunk.
  [[nodiscard]] virtual Result<std::optional<std::size_t>> encode(const CoderChunk& chunk,
                                                                  std::span<std::byte> out) = 0;
  // `out` has the size of the encoded chunk; `chunk.data` is ignored.
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

// A codec of <bitsnap/codec.hpp>: "float_split", or "float_split+base" against a base.
[[nodiscard]] Result<std::shared_ptr<const Coder>> make_codec_coder(std::string_view codec, bool with_base);

// `rotated` turns elements left by one bit first, so that a plane holds the whole exponent of a bf16 or f32.
enum class BytePlanes : std::uint8_t { plain, rotated, of_xor };

// Byte planes in front of another coder, which sees them as bytes: "zstd-1+planes", or "zstd-1+xor+planes" for planes
// of the XOR with the base. The first two accept elements of two bytes and more.
[[nodiscard]] std::shared_ptr<const Coder> make_plane_coder(std::shared_ptr<const Coder> coder, BytePlanes planes);

}  // namespace bitsnap
