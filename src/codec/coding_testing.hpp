// Encoding and decoding one chunk in guarded memory, for the tests of codecs.
#pragma once

#include <algorithm>
#include <deque>
#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "codec/chunk_data_testing.hpp"
#include "codec/decoder.hpp"
#include "codec/encoder.hpp"

namespace bitsnap::codec {

// Clusters that have the numbers of Pattern::multiples and Pattern::low_half_zero, both of Pattern::one_outlier, and
// the first 256 of Pattern::ramp.
[[nodiscard]] std::vector<ClusterExtent> pattern_clusters();

// A chunk and, unless `base` is empty, its inputs: `base`, and behind it those of `more`, in the chunk's dtype.
struct TestChunk {
  DType dtype = DType::opaque;
  std::vector<std::byte> data;
  std::vector<std::byte> base;
  InputKind kind = InputKind::base;
  RowPlace rows = {};
  std::optional<DType> base_dtype = {};  // nullopt: the chunk's own
  struct More {
    InputKind kind = InputKind::peer;
    std::vector<std::byte> bytes;
  };
  std::vector<More> more = {};
  std::optional<Lattice> lattice = Lattice{.a = 0, .b = 0x1p-10F};  // that of Pattern::multiples
  std::vector<ClusterExtent> clusters = pattern_clusters();

  [[nodiscard]] std::size_t elements() const noexcept { return data.size() / element_size(dtype); }
};

// The surroundings of a test chunk; the inputs lie in guarded memory of their own. Lives in one place: the context
// refers to it.
class TestSurroundings {
 public:
  explicit TestSurroundings(const TestChunk& chunk);
  TestSurroundings(const TestSurroundings&) = delete;
  TestSurroundings& operator=(const TestSurroundings&) = delete;

  [[nodiscard]] const EncodeContext& context() const noexcept { return context_; }
  [[nodiscard]] bool intact() const noexcept {
    return std::ranges::all_of(bytes_, [](const GuardedBuffer& bytes) { return bytes.intact(); });
  }

 private:
  std::deque<GuardedBuffer> bytes_;
  std::vector<Input> inputs_;
  EncodeContext context_;
};

// Whether the codec takes this chunk at all.
[[nodiscard]] bool accepts(const Decoder& decoder, const TestChunk& chunk);

// The payload; nullopt where the codec cannot express the chunk. Fails the test where the encoder gives an error,
// writes beyond the room it asked for, or says it wrote more than the chunk's size.
[[nodiscard]] std::optional<std::vector<std::byte>> encode_test_chunk(const Encoder& encoder, const TestChunk& chunk,
                                                                      Scratch& scratch);

// What decoding gives, in the place of chunk.data (of which only the size is used). Fails the test where the decoder
// writes beyond its output, or leaves a byte of it unwritten without an error.
[[nodiscard]] Result<std::vector<std::byte>> decode_test_chunk(const Decoder& decoder, ConstByteSpan payload,
                                                               const TestChunk& chunk, Scratch& scratch);

// Runs at each CPU level that the machine has. The level is the detected one afterwards.
void at_every_level(const std::function<void()>& body);

// "01 A0 ff" as bytes; spaces are free.
[[nodiscard]] std::vector<std::byte> hex_bytes(std::string_view text);

// The elements, one after another, little-endian.
[[nodiscard]] std::vector<std::byte> elements_of(DType dtype, std::initializer_list<std::uint64_t> elements);

}  // namespace bitsnap::codec
