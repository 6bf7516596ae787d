#include "codec/coding_testing.hpp"

#include <algorithm>
#include <cmath>

#ifdef __x86_64__
#include <immintrin.h>
#endif

namespace bitsnap::codec {

std::vector<ClusterExtent> pattern_clusters() {
  // An octave has 128 numbers of two bytes: every other number of a cluster.
  std::vector<ClusterExtent> clusters;
  for (int exponent = -4; exponent >= -10; --exponent) {
    clusters.push_back({-std::ldexp(255.5F, exponent - 7), -std::ldexp(128.0F, exponent - 7)});
  }
  clusters.push_back({0, std::ldexp(255.0F, -149)});
  for (int exponent = -10; exponent <= -4; ++exponent) {
    clusters.push_back({std::ldexp(128.0F, exponent - 7), std::ldexp(255.5F, exponent - 7)});
  }
  clusters.push_back({0.75F, 1.5F});
  return clusters;
}

TestSurroundings::TestSurroundings(const TestChunk& chunk) {
  const auto add = [this](InputKind kind, DType dtype, ConstByteSpan bytes) {
    inputs_.push_back({.kind = kind, .dtype = dtype, .bytes = bytes_.emplace_back(bytes).span()});
  };
  if (!chunk.base.empty()) {
    add(chunk.kind, chunk.base_dtype.value_or(chunk.dtype), chunk.base);
    for (const TestChunk::More& more : chunk.more) add(more.kind, chunk.dtype, more.bytes);
  }
  context_ = {{.dtype = chunk.dtype, .elements = chunk.elements(), .inputs = inputs_},
              chunk.rows,
              chunk.lattice,
              chunk.clusters};
}

bool accepts(const Decoder& decoder, const TestChunk& chunk) {
  const TestSurroundings surroundings(chunk);
  return decoder.accepts(chunk.dtype, surroundings.context().inputs);
}

std::optional<std::vector<std::byte>> encode_test_chunk(const Encoder& encoder, const TestChunk& chunk,
                                                        Scratch& scratch) {
  const TestSurroundings surroundings(chunk);
  GuardedBuffer data{ConstByteSpan(chunk.data)};
  GuardedBuffer out(encoder.max_encoded_size(chunk.dtype, chunk.elements()));
  const auto size = encoder.encode(data.span(), surroundings.context(), out.span(), scratch);
  EXPECT_TRUE(out.intact()) << "the encoder wrote beyond max_encoded_size";
  EXPECT_TRUE(data.intact() && surroundings.intact()) << "the encoder wrote to what it reads";
  if (!size) {
    ADD_FAILURE() << size.error().message();
    return std::nullopt;
  }
  if (!*size) return std::nullopt;
  EXPECT_LE(**size, chunk.data.size()) << "larger than raw";
  EXPECT_LE(**size, out.span().size());
  const ByteSpan payload = out.span().first(std::min(**size, out.span().size()));
  return std::vector<std::byte>(payload.begin(), payload.end());
}

Result<std::vector<std::byte>> decode_test_chunk(const Decoder& decoder, ConstByteSpan payload, const TestChunk& chunk,
                                                 Scratch& scratch) {
  const TestSurroundings surroundings(chunk);
  GuardedBuffer guarded_payload{payload};
  GuardedBuffer first(chunk.data.size(), std::byte{0x00});
  GuardedBuffer second(chunk.data.size(), std::byte{0xFF});
  for (GuardedBuffer* out : {&first, &second}) {
    const Result<void> decoded = decoder.decode(guarded_payload.span(), surroundings.context(), out->span(), scratch);
    EXPECT_TRUE(out->intact()) << "the decoder wrote beyond its output";
    EXPECT_TRUE(guarded_payload.intact() && surroundings.intact()) << "the decoder wrote to what it reads";
    if (!decoded) return tl::unexpected(decoded.error());
  }
  const ByteSpan bytes = first.span();
  EXPECT_TRUE(std::ranges::equal(bytes, second.span())) << "a byte of the output was never written";
  return std::vector<std::byte>(bytes.begin(), bytes.end());
}

std::optional<std::vector<std::byte>> round_trip(const Encoder& encoder, const TestChunk& chunk, Scratch& scratch) {
  std::optional<std::vector<std::byte>> payload;
  at_every_level([&] {
    auto encoded = encode_test_chunk(encoder, chunk, scratch);
    if (cpu_level() == CpuLevel::scalar)
      payload = std::move(encoded);
    else
      ASSERT_TRUE(encoded == payload) << "the bytes differ from those of the scalar level";
  });
  if (!payload) return std::nullopt;
  at_every_level([&] {
    const auto decoded = decode_test_chunk(encoder.decoder(), *payload, chunk, scratch);
    ASSERT_TRUE(decoded) << decoded.error().message();
    ASSERT_TRUE(*decoded == chunk.data) << "decodes to other bytes";
  });
  return payload;
}

std::vector<std::byte> CodecTest::expect_round_trip(const TestChunk& chunk) {
  auto payload = round_trip(encoder_, chunk, scratch_);
  EXPECT_TRUE(payload) << "the codec cannot express the chunk";
  return std::move(payload).value_or(std::vector<std::byte>(chunk.data.size()));
}

double CodecTest::stored_bits(const TestChunk& chunk) {
  const auto payload = round_trip(encoder_, chunk, scratch_);
  const std::size_t bytes = payload ? payload->size() : chunk.data.size();
  return 8.0 * static_cast<double>(bytes) / static_cast<double>(chunk.elements());
}

void CodecTest::expect_refused(ConstByteSpan payload, const TestChunk& chunk, std::string_view words, ErrorKind kind) {
  at_every_level([&] {
    const auto decoded = decode_test_chunk(encoder_.decoder(), payload, chunk, scratch_);
    ASSERT_FALSE(decoded) << words;
    const std::string message = decoded.error().message();
    EXPECT_EQ(decoded.error().kind(), kind) << words << ": " << message;
    EXPECT_NE(message.find(words), std::string::npos) << words << ": " << message;
  });
}

void CodecTest::expect_same_in_every_float_mode(const TestChunk& chunk) {
#if defined(__x86_64__)
  const std::vector<std::byte> payload = expect_round_trip(chunk);
  const unsigned before = _mm_getcsr();
  at_every_level([&] {
    constexpr unsigned kMode = 0xe040;  // flush to zero, subnormals are zero, round towards zero
    _mm_setcsr(before | kMode);
    const auto encoded = encode_test_chunk(encoder_, chunk, scratch_);
    const auto decoded = decode_test_chunk(encoder_.decoder(), payload, chunk, scratch_);
    EXPECT_EQ(_mm_getcsr() & kMode, kMode) << "the codec did not restore the caller's mode";
    _mm_setcsr(before);
    EXPECT_TRUE(encoded == payload);
    EXPECT_TRUE(decoded && *decoded == chunk.data);
  });
#else
  GTEST_SKIP() << "this test sets the mode on x86-64 only";
#endif
}

std::vector<std::byte> hex_bytes(std::string_view text) {
  std::vector<std::byte> bytes;
  unsigned value = 0;
  int digits = 0;
  for (const char c : text) {
    if (c == ' ') continue;
    value = value * 16 + static_cast<unsigned>(c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10);
    if (++digits == 2) {
      bytes.push_back(static_cast<std::byte>(value));
      value = 0;
      digits = 0;
    }
  }
  return bytes;
}

std::vector<std::byte> elements_of(DType dtype, std::initializer_list<std::uint64_t> elements) {
  std::vector<std::byte> bytes;
  for (const std::uint64_t element : elements) {
    for (std::size_t k = 0; k < element_size(dtype); ++k) {
      bytes.push_back(static_cast<std::byte>(element >> (8 * k) & 0xFF));
    }
  }
  return bytes;
}

}  // namespace bitsnap::codec
