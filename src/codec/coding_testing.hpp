// Encodes and decodes one chunk in guarded memory, for the tests of codecs.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <optional>
#include <string_view>
#include <vector>

#include "base/cpu_levels_testing.hpp"
#include "codec/chunk_data_testing.hpp"
#include "codec/decoder.hpp"
#include "codec/encoder.hpp"

namespace bitsnap::codec {

// Clusters with the numbers of Pattern::multiples, Pattern::low_half_zero and Pattern::one_outlier, and the first 256
// of Pattern::ramp.
[[nodiscard]] std::vector<ClusterExtent> pattern_clusters();

// A chunk and, unless `base` is empty, its inputs: `base`, then those of `more`, in the chunk's dtype.
struct TestChunk {
  DType dtype = DType::opaque;
  std::vector<std::byte> data;
  std::vector<std::byte> base;
  InputKind kind = InputKind::base;
  RowPlace rows = {};
  std::optional<DType> base_dtype = {};  // nullopt: the chunk's dtype
  struct More {
    InputKind kind = InputKind::peer;
    std::vector<std::byte> bytes;
  };
  std::vector<More> more = {};
  std::optional<Lattice> lattice = Lattice{.a = 0, .b = 0x1p-10F};  // the lattice of Pattern::multiples
  std::vector<ClusterExtent> clusters = pattern_clusters();

  [[nodiscard]] std::size_t elements() const noexcept { return data.size() / element_size(dtype); }
};

// The context of a test chunk, with inputs in guarded memory. Not movable, because the context refers to it.
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

// Whether the codec accepts this chunk.
[[nodiscard]] bool accepts(const Decoder& decoder, const TestChunk& chunk);

// Returns the payload, or nullopt if the codec cannot express the chunk. Fails the test if the encoder returns an
// error, writes beyond its room, or returns a size above the chunk's size.
[[nodiscard]] std::optional<std::vector<std::byte>> encode_test_chunk(const Encoder& encoder, const TestChunk& chunk,
                                                                      Scratch& scratch);

// Returns the decoded bytes; of chunk.data only the size is used. Fails the test if the decoder writes beyond its
// output, or succeeds without writing every byte.
[[nodiscard]] Result<std::vector<std::byte>> decode_test_chunk(const Decoder& decoder, ConstByteSpan payload,
                                                               const TestChunk& chunk, Scratch& scratch);

// Encodes and decodes the chunk at every CPU level. Returns the payload, which all levels must write and read, or
// nullopt if the codec cannot express the chunk.
[[nodiscard]] std::optional<std::vector<std::byte>> round_trip(const Encoder& encoder, const TestChunk& chunk,
                                                               Scratch& scratch);

// Converts "01 A0 ff" to bytes; spaces are ignored.
[[nodiscard]] std::vector<std::byte> hex_bytes(std::string_view text);

// The elements in order, little-endian.
[[nodiscard]] std::vector<std::byte> elements_of(DType dtype, std::initializer_list<std::uint64_t> elements);

// A fixture for the tests of one codec.
class CodecTest : public testing::Test {
 protected:
  explicit CodecTest(const Encoder& encoder) noexcept : encoder_(encoder) {}

  // round_trip() of a chunk that the codec must express.
  std::vector<std::byte> expect_round_trip(const TestChunk& chunk);

  // The payload's bits per element, or the chunk's if the codec cannot express it.
  double stored_bits(const TestChunk& chunk);

  // Expects every CPU level to refuse the payload, with `words` in the message.
  void expect_refused(ConstByteSpan payload, const TestChunk& chunk, std::string_view words,
                      ErrorKind kind = ErrorKind::corrupt);
  void expect_refused(std::string_view hex, const TestChunk& chunk, std::string_view words,
                      ErrorKind kind = ErrorKind::corrupt) {
    expect_refused(hex_bytes(hex), chunk, words, kind);
  }

  // Expects the same payload and chunk in a thread that flushes subnormals to zero, as torch.set_flush_denormal(True)
  // does, and rounds towards zero.
  void expect_same_in_every_float_mode(const TestChunk& chunk);

  const Encoder& encoder_;
  Scratch scratch_;
};

}  // namespace bitsnap::codec
