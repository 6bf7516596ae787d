// Tests of scaled_by: it restores every multiple, its sizes, its exceptions, and its independence of the floating-point
// mode.
#include "codec/scaled_by/scaled_by.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <vector>

#include <bitsnap/tensor.hpp>

#include "codec/builtin_codecs.hpp"
#include "codec/scaled_by/lattice_testing.hpp"
#include "codec/trained_like_testing.hpp"

namespace bitsnap::codec {
namespace {

constexpr float kFloatInfinity = std::numeric_limits<float>::infinity();
constexpr float kFloatNaN = std::numeric_limits<float>::quiet_NaN();
constexpr std::size_t kLanesHeader = 13;  // the size for a payload without a base

// The order-0 entropy of the numbers.
double order_0_bits(const std::vector<int>& numbers) {
  std::map<int, double> counts;
  for (const int number : numbers) ++counts[number];
  double bits = 0;
  for (const auto& [number, count] : counts) bits -= count * std::log2(count / static_cast<double>(numbers.size()));
  return bits / static_cast<double>(numbers.size());
}

TestChunk chunk_of(const Floats& moments, const Floats& squares, const Lattice& lattice) {
  return {.dtype = DType::f32,
          .data = trained_bytes(moments),
          .base = trained_bytes(squares),
          .kind = InputKind::peer,
          .base_dtype = DType::f32,
          .lattice = lattice};
}

class ScaledBy : public CodecTest {
 protected:
  ScaledBy() : CodecTest(scaled_by_encoder()) {}

  std::size_t exceptions_of(const TestChunk& chunk) {
    const std::vector<std::byte> payload = expect_round_trip(chunk);
    return load_le<std::uint32_t>(payload.data() + (chunk.more.empty() ? 9 : 10));
  }

  // Decodes a payload of a chunk with these inputs.
  Floats decoded(std::string_view payload, const TestChunk& chunk) {
    const auto bytes = decode_test_chunk(scaled_by_decoder(), hex_bytes(payload), chunk, scratch_);
    if (!bytes) {
      ADD_FAILURE() << bytes.error().message();
      return {};
    }
    Floats floats(chunk.elements());
    std::memcpy(floats.data(), bytes->data(), bytes->size());
    return floats;
  }
};

TEST_F(ScaledBy, StoresMultiplesAtTheirEntropy) {
  const Lattice lattice = trained_lattice();
  const TrainedState state = trained_state(kChunkElements, 1);
  const Floats multiples = on_lattice(state.m, state.v, lattice);
  std::vector<int> integers;
  for (std::size_t i = 0; i < multiples.size(); ++i) {
    integers.push_back(static_cast<int>(std::lrint(multiples[i] / (lattice.a * std::sqrt(state.v[i]) + lattice.b))));
  }
  const TestChunk chunk = chunk_of(multiples, state.v, lattice);
  const double bits = order_0_bits(integers);
  EXPECT_GT(bits, 5);
  EXPECT_LT(stored_bits(chunk), 1.02 * bits);
  EXPECT_EQ(exceptions_of(chunk), 0U);
}

TEST_F(ScaledBy, StoresLessIfTheBasePredictsAShare) {
  const Lattice lattice = trained_lattice();
  const double alone = stored_bits(lattice_chunk(kChunkElements, lattice, false, 2));
  const double from_base = stored_bits(lattice_chunk(kChunkElements, lattice, true, 2));
  EXPECT_LT(from_base, alone - 0.5);
  // The share of an unrelated base is almost zero.
  TestChunk misled = lattice_chunk(kChunkElements, lattice, true, 2);
  misled.base = lattice_chunk(kChunkElements, lattice, false, 3).data;
  EXPECT_LT(stored_bits(misled), alone + 0.02);
}

// Includes chunks too small for lanes.
TEST_F(ScaledBy, StoresChunksOfEverySizeInLessThanTheirBytes) {
  const Lattice lattice = trained_lattice();
  for (const std::size_t elements : {40U, 300U, 1024U, 4096U, 16384U, 16385U, 70001U}) {
    SCOPED_TRACE(elements);
    for (const bool from_base : {false, true}) {
      const double bits = stored_bits(lattice_chunk(elements, lattice, from_base, 4));
      EXPECT_LT(bits, elements < 300 ? 20 : elements < 1024 ? 11 : elements < 16384 ? 7.5 : 6.2);
    }
  }
  EXPECT_LT(stored_bits(chunk_of(Floats(1024), Floats(1024, 1.0F), lattice)), 0.2);
  EXPECT_LT(stored_bits(chunk_of(Floats(kChunkElements), Floats(kChunkElements, 1.0F), lattice)), 0.03);
}

TEST_F(ScaledBy, RestoresEveryMultiple) {
  // From the smallest scale to one whose largest multiples are nearly infinite.
  for (const float scale : {0x1p-149F, 0x1.8p-148F, 0x1.fffffep-127F, 0x1p-126F, 0x1.555556p-60F, 0x1.aaaaaap-7F, 1.0F,
                            0x1.99999ap+20F, 0x1.fffffep+111F}) {
    SCOPED_TRACE(scale);
    Floats multiples;
    for (int j = -32767; j <= 32767; ++j) multiples.push_back(static_cast<float>(j) * scale + 0.0F);
    const TestChunk chunk = chunk_of(multiples, Floats(multiples.size()), {.a = 0, .b = scale});
    at_every_level([&] { EXPECT_EQ(exceptions_of(chunk), 0U); });
  }
  // The same with the square root of any second moment.
  TestRandom random(5);
  Floats squares;
  Floats multiples;
  const Lattice lattice{.a = 0.019F, .b = 3e-12F};
  for (int i = 0; i < 100'000; ++i) {
    const auto bits = static_cast<std::uint32_t>(random.below(0x7f800000));
    squares.push_back(std::bit_cast<float>(bits));
    const float root = lattice.a * std::sqrt(squares.back());
    const float scale = root + lattice.b;
    multiples.push_back(static_cast<float>(static_cast<int>(random.below(65535)) - 32767) * scale);
  }
  at_every_level([&] { EXPECT_EQ(exceptions_of(chunk_of(multiples, squares, lattice)), 0U); });
}

// At every place: zeros, infinities, NaNs, subnormal numbers, and numbers that are no multiples.
TEST_F(ScaledBy, StoresOtherNumbersAsExceptions) {
  const Lattice lattice = trained_lattice();
  const float specials[] = {0.0F,
                            -0.0F,
                            kFloatInfinity,
                            -kFloatInfinity,
                            kFloatNaN,
                            std::bit_cast<float>(0xff812345U),
                            std::numeric_limits<float>::denorm_min(),
                            std::numeric_limits<float>::max(),
                            -1.0F};
  for (const bool from_base : {false, true}) {
    for (const std::size_t elements : {9'000U, 70'000U}) {
      TestChunk chunk = lattice_chunk(elements, lattice, from_base, 6);
      TestRandom random(7);
      std::vector<std::vector<std::byte>*> all{&chunk.data, &chunk.base};
      if (from_base) all.push_back(&chunk.more[0].bytes);
      for (std::vector<std::byte>* bytes : all) {
        for (int i = 0; i < 300; ++i) {
          const float special = specials[random.below(std::size(specials))];
          std::memcpy(bytes->data() + random.below(elements) * sizeof(float), &special, sizeof special);
        }
      }
      at_every_level([&] { EXPECT_LT(stored_bits(chunk), 10); });
      EXPECT_GT(exceptions_of(chunk), 200U);
    }
  }
}

TEST_F(ScaledBy, StoresZerosAsMultiplesBesideAnySecondMoment) {
  const Floats some = {0.0F,      -0.0F, kFloatInfinity, -kFloatInfinity,
                       kFloatNaN, -1.0F, 1.0F,           std::numeric_limits<float>::max()};
  Floats squares;
  for (std::size_t i = 0; i < 2000; ++i) squares.push_back(some[i % some.size()]);
  for (const Lattice lattice : {Lattice{1, 0}, Lattice{0, 0}, Lattice{3e38F, 3e38F}}) {
    EXPECT_EQ(exceptions_of(chunk_of(Floats(squares.size()), squares, lattice)), 0U);
  }
}

TEST_F(ScaledBy, RefusesChunksWithoutALattice) {
  TestChunk chunk = lattice_chunk(20'000, trained_lattice(), false, 8);
  const auto is_estimated = [&] {
    const TestSurroundings surroundings(chunk);
    return scaled_by_encoder()
        .analyze(chunk.data, surroundings.context(), chunk.elements(), scratch_)
        .value()
        .has_value();
  };
  EXPECT_TRUE(is_estimated());
  for (const auto& lattice : {std::optional<Lattice>(), std::optional(Lattice{-0.02F, 0}),
                              std::optional(Lattice{0, -0.0F}), std::optional(Lattice{kFloatInfinity, 0}),
                              std::optional(Lattice{0, kFloatNaN}), std::optional(trained_lattice(0.021F))}) {
    chunk.lattice = lattice;
    EXPECT_FALSE(is_estimated());
    EXPECT_FALSE(encode_test_chunk(scaled_by_encoder(), chunk, scratch_));
  }
}

TEST_F(ScaledBy, EstimatesThePayloadSize) {
  for (const bool from_base : {false, true}) {
    const TestChunk chunk = lattice_chunk(kChunkElements, trained_lattice(), from_base, 9);
    const TestSurroundings surroundings(chunk);
    const auto estimate =
        scaled_by_encoder().analyze(chunk.data, surroundings.context(), chunk.elements(), scratch_).value();
    ASSERT_TRUE(estimate);
    const std::vector<std::byte> payload = expect_round_trip(chunk);
    EXPECT_NEAR(static_cast<double>(estimate->payload_bytes), static_cast<double>(payload.size()),
                0.01 * static_cast<double>(payload.size()));
    // encode() reuses the analysis.
    EncodeContext context = surroundings.context();
    context.analysis = estimate->analysis.get();
    ASSERT_NE(context.analysis, nullptr);
    std::vector<std::byte> out(scaled_by_encoder().max_encoded_size(chunk.dtype, chunk.elements()));
    const auto size = scaled_by_encoder().encode(chunk.data, context, out, scratch_).value();
    ASSERT_EQ(size, payload.size());
    EXPECT_TRUE(std::equal(payload.begin(), payload.end(), out.begin()));
  }
}

TEST_F(ScaledBy, DoesNotDependOnTheFloatMode) {
  // Many scales and multiples are subnormal.
  const Lattice lattice{.a = 0.02F * 0x1p-110F, .b = 0};
  TrainedStep step = train_step(30'000, {}, 10);
  for (Floats* moments : {&step.before.m, &step.after.m}) {
    for (float& moment : *moments) moment *= 0x1p-110F;
  }
  TestChunk chunk = chunk_of(on_lattice(step.after.m, step.after.v, lattice), step.after.v, lattice);
  for (const bool from_base : {false, true}) {
    if (from_base) {
      chunk.more = {{InputKind::peer, chunk.base}};
      chunk.base = trained_bytes(on_lattice(step.before.m, step.before.v, lattice));
      chunk.kind = InputKind::base;
    }
    EXPECT_EQ(exceptions_of(chunk), 0U);
    expect_same_in_every_float_mode(chunk);
  }
}

TEST_F(ScaledBy, ReadsTheExamplesOfItsSpec) {
  const Floats four(4, 4.0F);
  TestChunk chunk = chunk_of({3.75F, -1.25F, 0.0F, 1.0F}, four, {.a = 0.5F, .b = 0.25F});
  at_every_level([&] {
    EXPECT_EQ(decoded("02 0000003F0000803E 01000000 0000803F 00060100FF 00000000FF", chunk),
              (Floats{3.75F, -1.25F, 0.0F, 1.0F}));
  });
  chunk = chunk_of({3.75F}, {4.0F}, {});
  chunk.more = {{InputKind::peer, chunk.base}};
  chunk.base = trained_bytes({2.5F});
  chunk.kind = InputKind::base;
  at_every_level([&] { EXPECT_EQ(decoded("03 0000003F0000803E 80 00000000 0004 0000", chunk), Floats{3.75F}); });
}

TEST_F(ScaledBy, RejectsEveryTruncationOfLanesAndSurvivesEveryFlippedByte) {
  for (const bool from_base : {false, true}) {
    TestChunk chunk = lattice_chunk(17'000, trained_lattice(0.5F), from_base, 11);
    chunk.data[3] = std::byte{0x7f};
    const std::vector<std::byte> payload = expect_round_trip(chunk);
    ASSERT_EQ(payload[0], from_base ? std::byte{1} : std::byte{0}) << "not in lanes";
    for (std::size_t size = 0; size < payload.size(); size += size < 100 ? 1 : 37) {
      EXPECT_FALSE(decode_test_chunk(scaled_by_decoder(), ConstByteSpan(payload).first(size), chunk, scratch_));
    }
    std::vector<std::byte> damaged = payload;
    for (std::size_t i = 0; i < damaged.size(); i += i < 100 ? 1 : 41) {
      for (const std::byte flip : {std::byte{0x01}, std::byte{0x80}, std::byte{0xFF}}) {
        damaged[i] = payload[i] ^ flip;
        static_cast<void>(decode_test_chunk(scaled_by_decoder(), damaged, chunk, scratch_));
      }
      damaged[i] = payload[i];
    }
  }
}

TEST_F(ScaledBy, RejectsInvalidPayloads) {
  TestChunk chunk = lattice_chunk(17'000, trained_lattice(), false, 12);
  std::memcpy(chunk.data.data(), "\1\2\3\4", 4);
  const std::vector<std::byte> good = expect_round_trip(chunk);
  ASSERT_EQ(good[9], std::byte{1}) << "one exception";
  const auto expect_corrupt = [&](const std::vector<std::byte>& payload, const char* what) {
    SCOPED_TRACE(what);
    expect_refused(payload, chunk, "");
  };
  for (const unsigned form : {1U, 3U, 4U, 255U}) {
    std::vector<std::byte> payload = good;
    payload[0] = static_cast<std::byte>(form);
    expect_corrupt(payload, "a form for other inputs");
  }
  for (const std::size_t at : {std::size_t{1}, std::size_t{5}}) {
    for (const float number : {-1.0F, -0.0F, kFloatInfinity, kFloatNaN}) {
      std::vector<std::byte> payload = good;
      std::memcpy(payload.data() + at, &number, sizeof number);
      expect_corrupt(payload, "an invalid scale");
    }
  }
  std::vector<std::byte> more = good;
  more[9] = std::byte{2};
  more.insert(more.begin() + kLanesHeader, 4, std::byte{0});
  expect_corrupt(more, "one exception too many");
  std::vector<std::byte> fewer(good.begin(), good.begin() + kLanesHeader);
  fewer.insert(fewer.end(), good.begin() + kLanesHeader + 4, good.end());
  fewer.at(9) = std::byte{0};
  expect_corrupt(fewer, "one exception too few");
}

TEST_F(ScaledBy, AcceptsASecondMomentAndAnEarlierBase) {
  const auto accepts = [](DType dtype, std::initializer_list<std::pair<InputKind, DType>> kinds) {
    std::vector<Input> inputs;
    for (const auto& [kind, own] : kinds) inputs.push_back({kind, own, {}});
    return scaled_by_decoder().accepts(dtype, inputs);
  };
  constexpr std::pair kBaseF32{InputKind::base, DType::f32};
  constexpr std::pair kPeerF32{InputKind::peer, DType::f32};
  constexpr std::pair kPeerBf16{InputKind::peer, DType::bf16};
  EXPECT_TRUE(accepts(DType::f32, {kPeerF32}));
  EXPECT_TRUE(accepts(DType::f32, {kBaseF32, kPeerF32}));
  EXPECT_FALSE(accepts(DType::f32, {}));
  EXPECT_FALSE(accepts(DType::f32, {kBaseF32}));
  EXPECT_FALSE(accepts(DType::f32, {kPeerF32, kPeerF32}));
  EXPECT_FALSE(accepts(DType::f32, {kPeerF32, kBaseF32}));
  EXPECT_FALSE(accepts(DType::f32, {kBaseF32, kPeerF32, kPeerF32}));
  EXPECT_FALSE(accepts(DType::f32, {kPeerBf16}));
  EXPECT_FALSE(accepts(DType::bf16, {kPeerBf16}));
}

}  // namespace
}  // namespace bitsnap::codec
