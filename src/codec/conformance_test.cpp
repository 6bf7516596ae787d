// Tests that every registered codec must pass. They find codecs by their registration and need no code for a new one.
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <optional>
#include <string>
#include <thread>

#include <bitsnap/cpu.hpp>
#include <bitsnap/tensor.hpp>

#include "codec/coding_testing.hpp"
#include "codec/registry.hpp"
#include "codec/registry_encode.hpp"
#include "codec/trained_like_testing.hpp"

namespace bitsnap::codec {
namespace {

constexpr std::size_t kSmallLengths[] = {1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 1000};
constexpr std::size_t kLargeLengths[] = {4097, 65535, 65536, 65537, 131072, kChunkElements - 1, kChunkElements};

template <typename T>
std::string message_of(const Result<T>& result) {
  return result ? std::string() : result.error().message();
}

// One dtype of each element size and of each form of float, for large chunks.
constexpr DType kSomeDTypes[] = {DType::u8, DType::f8_e4m3, DType::f16, DType::bf16, DType::f32, DType::f64};

// The inputs of a chunk: the kind and dtype (nullopt: the chunk's) of the first, and the kinds of the others.
constexpr auto kBase = InputKind::base;
constexpr auto kPeer = InputKind::peer;
struct InputForm {
  InputKind kind;
  std::optional<DType> dtype;
  std::vector<InputKind> more;
};
const InputForm kInputForms[] = {{kBase, {}, {}},
                                 {kPeer, {}, {}},
                                 {kPeer, DType::f32, {}},
                                 {kPeer, DType::bf16, {}},
                                 {kBase, {}, {kPeer}},
                                 {kBase, {}, {kPeer, kPeer}},
                                 {kBase, {}, {kBase, kPeer}}};

TestChunk make_test_chunk(Pattern pattern, BaseKind base, DType dtype, std::size_t elements,
                          const InputForm& input = kInputForms[0]) {
  const std::uint64_t seed = elements * 31 + static_cast<std::uint64_t>(pattern);
  TestChunk chunk{.dtype = dtype,
                  .data = make_chunk(pattern, dtype, elements, seed),
                  .base = {},
                  .kind = input.kind,
                  .base_dtype = input.dtype};
  chunk.base = input.dtype
                   ? make_base(base, make_peer(dtype, chunk.data, *input.dtype, seed), element_size(*input.dtype), seed)
                   : make_base(base, chunk.data, element_size(dtype), seed);
  for (std::size_t i = 0; i < input.more.size(); ++i) {
    chunk.more.push_back({input.more[i], make_base(base, chunk.data, element_size(dtype), seed + 1 + i)});
  }
  return chunk;
}

std::string describe(Pattern pattern, BaseKind base, DType dtype, std::size_t elements) {
  return std::to_string(elements) + " elements of " + std::string(dtype_name(dtype)) + ", " +
         std::string(pattern_name(pattern)) + ", base " + std::string(base_kind_name(base));
}

class CodecConformance : public testing::TestWithParam<const Encoder*> {
 protected:
  const Encoder& encoder() const { return *GetParam(); }
  const Decoder& decoder() const { return GetParam()->decoder(); }

  // Calls `body` with each of these chunks that the codec accepts.
  template <typename Body>
  void for_each_chunk(std::span<const std::size_t> lengths, std::span<const Pattern> patterns,
                      std::span<const BaseKind> bases, std::span<const DType> dtypes, Body&& body) {
    for (const DType dtype : dtypes) {
      for (const BaseKind base : bases) {
        for (const InputForm& input : kInputForms) {
          if (base == BaseKind::none && (input.kind == InputKind::peer || !input.more.empty())) continue;
          const TestChunk least = make_test_chunk(Pattern::zeros, base, dtype, 1, input);
          if ((input.dtype && least.base.empty()) || !accepts(decoder(), least)) continue;
          for (const std::size_t length : lengths) {
            for (const Pattern pattern : patterns) {
              SCOPED_TRACE(describe(pattern, base, dtype, length));
              body(make_test_chunk(pattern, base, dtype, length, input));
              if (HasFatalFailure()) return;
            }
          }
        }
      }
    }
  }

  // The dtypes that the codec accepts with any inputs.
  std::vector<DType> taken_dtypes() const {
    std::vector<DType> taken;
    for (const DType dtype : kAllDTypes) {
      const auto takes = [&](BaseKind base, const InputForm& input) {
        return accepts(decoder(), make_test_chunk(Pattern::zeros, base, dtype, 1, input));
      };
      const auto takes_input = [&](const InputForm& input) { return takes(BaseKind::equal, input); };
      if (takes(BaseKind::none, kInputForms[0]) || std::ranges::any_of(kInputForms, takes_input))
        taken.push_back(dtype);
    }
    return taken;
  }

  void expect_round_trip_at_every_level(const TestChunk& chunk) {
    if (round_trip(encoder(), chunk, scratch_)) ++expressed_;
  }

  Scratch scratch_;
  std::size_t expressed_ = 0;
};

TEST_P(CodecConformance, RoundTripsSmallChunksOfEveryKindAtEveryCpuLevel) {
  for_each_chunk(kSmallLengths, kAllPatterns, kAllBaseKinds, kAllDTypes,
                 [&](const TestChunk& chunk) { expect_round_trip_at_every_level(chunk); });
  // A codec for whole chunks may have headers larger than the smallest chunks.
  EXPECT_GT(expressed_, encoder().analyzes_whole_chunks(DType::f64) ? 30U : 100U)
      << "the codec expressed hardly any chunk";
}

TEST_P(CodecConformance, RoundTripsLargeChunksOfEdgeLengthsAtEveryCpuLevel) {
  constexpr Pattern kPatterns[] = {Pattern::trained_like};
  constexpr BaseKind kBases[] = {BaseKind::none, BaseKind::equal, BaseKind::near};
  for_each_chunk(kLargeLengths, kPatterns, kBases, kSomeDTypes,
                 [&](const TestChunk& chunk) { expect_round_trip_at_every_level(chunk); });
}

TEST_P(CodecConformance, RoundTripsWholeChunksOfEveryDtypeAtEveryCpuLevel) {
  constexpr std::size_t kLengths[] = {kChunkElements};
  constexpr Pattern kPatterns[] = {Pattern::ramp};
  constexpr BaseKind kBases[] = {BaseKind::none, BaseKind::sparse, BaseKind::drifted};
  for_each_chunk(kLengths, kPatterns, kBases, kAllDTypes,
                 [&](const TestChunk& chunk) { expect_round_trip_at_every_level(chunk); });
}

TEST_P(CodecConformance, RoundTripsLargeChunksOfEveryPatternAtEveryCpuLevel) {
  constexpr std::size_t kLengths[] = {65537};
  constexpr BaseKind kBases[] = {BaseKind::none, BaseKind::equal, BaseKind::sparse};
  std::size_t chunks = 0;
  for_each_chunk(kLengths, kAllPatterns, kBases, kSomeDTypes, [&](const TestChunk& chunk) {
    ++chunks;
    expect_round_trip_at_every_level(chunk);
  });
  // A codec for a single dtype without inputs has only one chunk of each pattern.
  EXPECT_GT(expressed_, chunks > std::size(kAllPatterns) ? 5U : 3U) << "the codec expressed next to nothing";
}

// Chunks whose payloads are small enough for damage at every place.
constexpr std::size_t kFragileLengths[] = {1, 3, 9, 65, 300};
constexpr Pattern kFragilePatterns[] = {Pattern::zeros, Pattern::trained_like, Pattern::non_negative, Pattern::rounded,
                                        Pattern::ramp};
constexpr BaseKind kFragileBases[] = {BaseKind::none, BaseKind::equal, BaseKind::sparse};

bool blames_the_data(const Error& error) {
  return error.kind() == ErrorKind::corrupt || error.kind() == ErrorKind::truncated;
}

TEST_P(CodecConformance, RejectsEveryTruncation) {
  for_each_chunk(kFragileLengths, kFragilePatterns, kFragileBases, kAllDTypes, [&](const TestChunk& chunk) {
    const auto payload = encode_test_chunk(encoder(), chunk, scratch_);
    if (!payload) return;
    for (std::size_t size = 0; size < payload->size(); ++size) {
      const auto decoded = decode_test_chunk(decoder(), ConstByteSpan(*payload).first(size), chunk, scratch_);
      ASSERT_FALSE(decoded) << "cut to " << size << " of " << payload->size() << " bytes";
      ASSERT_TRUE(blames_the_data(decoded.error())) << message_of(decoded);
      ASSERT_FALSE(decoded.error().message().empty());
    }
  });
}

TEST_P(CodecConformance, RejectsTrailingBytes) {
  for_each_chunk(kFragileLengths, kFragilePatterns, kFragileBases, kAllDTypes, [&](const TestChunk& chunk) {
    auto payload = encode_test_chunk(encoder(), chunk, scratch_);
    if (!payload) return;
    for (const std::byte trailing : {std::byte{0x00}, std::byte{0x5A}, std::byte{0xFF}}) {
      for (const std::size_t count : {1U, 2U, 4U, 100U}) {
        std::vector<std::byte> longer = *payload;
        longer.insert(longer.end(), count, trailing);
        const auto decoded = decode_test_chunk(decoder(), longer, chunk, scratch_);
        ASSERT_FALSE(decoded) << count << " trailing bytes";
        ASSERT_EQ(decoded.error().kind(), ErrorKind::corrupt) << message_of(decoded);
      }
    }
    std::vector<std::byte> twice = *payload;
    twice.insert(twice.end(), payload->begin(), payload->end());
    if (!payload->empty()) {
      ASSERT_FALSE(decode_test_chunk(decoder(), twice, chunk, scratch_)) << "the payload, twice";
    }
  });
}

TEST_P(CodecConformance, SurvivesEveryFlippedByte) {
  for_each_chunk(kFragileLengths, kFragilePatterns, kFragileBases, kAllDTypes, [&](const TestChunk& chunk) {
    const auto payload = encode_test_chunk(encoder(), chunk, scratch_);
    if (!payload) return;
    std::vector<std::byte> damaged = *payload;
    for (std::byte& byte : damaged) {
      const std::byte good = byte;
      for (const std::byte flip : {std::byte{0x01}, std::byte{0x80}, std::byte{0xFF}}) {
        byte = good ^ flip;
        const auto decoded = decode_test_chunk(decoder(), damaged, chunk, scratch_);
        ASSERT_TRUE(decoded || blames_the_data(decoded.error())) << message_of(decoded);
      }
      byte = good;
    }
  });
}

TEST_P(CodecConformance, SurvivesRandomPayloadsAndDamageToLargeOnes) {
  TestRandom random(1);
  constexpr std::size_t kLengths[] = {65537};
  constexpr Pattern kPatterns[] = {Pattern::trained_like, Pattern::zeros};
  constexpr DType kDTypes[] = {DType::u8, DType::bf16, DType::f32};
  for_each_chunk(kLengths, kPatterns, kFragileBases, kDTypes, [&](const TestChunk& chunk) {
    std::vector<std::byte> noise(random.below(chunk.data.size()));
    for (std::byte& byte : noise) byte = static_cast<std::byte>(random.next());
    const auto of_noise = decode_test_chunk(decoder(), noise, chunk, scratch_);
    ASSERT_TRUE(of_noise || blames_the_data(of_noise.error())) << message_of(of_noise);
    const auto payload = encode_test_chunk(encoder(), chunk, scratch_);
    if (!payload || payload->empty()) return;
    for (int round = 0; round < 40; ++round) {
      std::vector<std::byte> damaged = *payload;
      // Half of the damage hits the front, where headers and tables are.
      const std::size_t reach = round % 2 == 0 ? damaged.size() : std::min<std::size_t>(damaged.size(), 300);
      for (std::uint64_t hits = 1 + random.below(4); hits > 0; --hits) {
        damaged[random.below(reach)] = static_cast<std::byte>(random.next());
      }
      const auto decoded = decode_test_chunk(decoder(), damaged, chunk, scratch_);
      ASSERT_TRUE(decoded || blames_the_data(decoded.error())) << message_of(decoded);
    }
  });
}

TEST_P(CodecConformance, WritesTheSameBytesForAnyScratchContents) {
  constexpr std::size_t kLengths[] = {65, 70000};
  for_each_chunk(kLengths, kFragilePatterns, kFragileBases, kAllDTypes, [&](const TestChunk& chunk) {
    std::optional<std::vector<std::byte>> payloads[2];
    for (const int dirt : {0x00, 0xFF}) {
      Scratch dirty;
      {
        const Scratch::Frame frame(dirty);
        auto memory = dirty.take(std::size_t{4} << 20);
        ASSERT_TRUE(memory);
        std::memset(memory->data(), dirt, memory->size());  // a loop would take most of the time of an unoptimised test
      }
      payloads[dirt & 1] = encode_test_chunk(encoder(), chunk, dirty);
    }
    ASSERT_TRUE(payloads[0] == payloads[1]);
  });
}

TEST_P(CodecConformance, WritesTheSameBytesFromSeveralThreads) {
  std::vector<TestChunk> chunks;
  std::vector<std::optional<std::vector<std::byte>>> expected;
  constexpr std::size_t kLengths[] = {1000, 66000};
  constexpr DType kDTypes[] = {DType::u8, DType::bf16, DType::f32, DType::i64};
  for_each_chunk(kLengths, kFragilePatterns, kFragileBases, kDTypes, [&](const TestChunk& chunk) {
    chunks.push_back(chunk);
    expected.push_back(encode_test_chunk(encoder(), chunk, scratch_));
  });
  ASSERT_FALSE(chunks.empty());
  std::vector<std::size_t> wrong(4, 0);
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < wrong.size(); ++t) {
    threads.emplace_back([&, t] {
      Scratch scratch;
      for (std::size_t i = 0; i < chunks.size(); ++i) {
        const std::size_t at = (i + t * 7) % chunks.size();
        const auto payload = encode_test_chunk(encoder(), chunks[at], scratch);
        if (payload != expected[at]) ++wrong[t];
        if (!payload) continue;
        const auto decoded = decode_test_chunk(decoder(), *payload, chunks[at], scratch);
        if (!decoded || *decoded != chunks[at].data) ++wrong[t];
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<std::size_t>(wrong.size(), 0));
}

TEST_P(CodecConformance, EstimatesAChunkThatIsItsOwnSampleExactly) {
  constexpr std::size_t kLengths[] = {9, 1000, 66000};
  for_each_chunk(kLengths, kFragilePatterns, kFragileBases, kAllDTypes, [&](const TestChunk& chunk) {
    // A codec that takes its own sample takes all of a small chunk.
    if (encoder().analyzes_whole_chunks(chunk.dtype) && chunk.elements() > 1000) return;
    const TestSurroundings surroundings(chunk);
    const auto estimate = encoder().analyze(chunk.data, surroundings.context(), chunk.elements(), scratch_);
    ASSERT_TRUE(estimate) << estimate.error().message();
    const auto payload = encode_test_chunk(encoder(), chunk, scratch_);
    ASSERT_EQ(estimate->has_value(), payload.has_value());
    if (!payload) return;
    ASSERT_EQ((*estimate)->payload_bytes, payload->size());
    ASSERT_TRUE(decoder().check_parameters({}));
  });
}

TEST_P(CodecConformance, AcceptsAtMostTheMaximalNumberOfInputs) {
  const Input input{.kind = InputKind::base, .dtype = DType::f32, .bytes = {}};
  const std::vector<Input> too_many(kMaxInputs + 1, input);
  EXPECT_FALSE(decoder().accepts(DType::f32, too_many));
}

TEST_P(CodecConformance, RejectsParametersOfOthers) {
  EXPECT_TRUE(decoder().check_parameters({}));
  std::vector<std::byte> junk(257, std::byte{0xEE});
  for (const std::size_t size : {1U, 8U, 257U}) {
    const auto checked = decoder().check_parameters(ConstByteSpan(junk).first(size));
    ASSERT_FALSE(checked);
    EXPECT_EQ(checked.error().kind(), ErrorKind::corrupt);
  }
}

TEST_P(CodecConformance, RoundTripsRandomChunksOfPropertyTesting) {
  const bool holds = rc::check("decode(encode(x, inputs), inputs) == x", [&] {
    const DType dtype = *rc::gen::elementOf(taken_dtypes());
    const std::size_t width = element_size(dtype);
    const auto elements = *rc::gen::inRange<std::size_t>(1, 400);
    // Few distinct bytes make runs and skewed planes likely.
    const auto alphabet = *rc::gen::nonEmpty(rc::gen::arbitrary<std::vector<std::uint8_t>>());
    const auto picks =
        *rc::gen::container<std::vector<std::uint16_t>>(elements * width, rc::gen::arbitrary<std::uint16_t>());
    TestChunk chunk{.dtype = dtype, .data = {}, .base = {}};
    for (const std::uint16_t pick : picks) chunk.data.push_back(std::byte{alphabet[pick % alphabet.size()]});
    const bool alone = accepts(decoder(), chunk);
    if (!alone || *rc::gen::arbitrary<bool>()) {
      chunk.base = chunk.data;
      const auto changes = *rc::gen::container<std::vector<std::uint16_t>>(rc::gen::arbitrary<std::uint16_t>());
      for (const std::uint16_t change : changes) {
        chunk.base[change % chunk.base.size()] ^= static_cast<std::byte>(change >> 8);
      }
    }
    for (const InputForm& input : kInputForms) {
      if (chunk.base.empty() || accepts(decoder(), chunk)) break;
      TestChunk tried = chunk;
      tried.kind = input.kind;
      tried.base_dtype = input.dtype;
      if (input.dtype) tried.base = make_peer(dtype, chunk.base, *input.dtype, elements);
      for (const InputKind kind : input.more) tried.more.push_back({kind, chunk.base});
      if (!tried.base.empty() && accepts(decoder(), tried)) chunk = std::move(tried);
    }
    if (alone && !accepts(decoder(), chunk)) chunk.base.clear();
    RC_ASSERT(accepts(decoder(), chunk));
    const auto payload = encode_test_chunk(encoder(), chunk, scratch_);
    if (!payload) return;
    const auto decoded = decode_test_chunk(decoder(), *payload, chunk, scratch_);
    RC_ASSERT(decoded.has_value());
    RC_ASSERT(*decoded == chunk.data);
  });
  EXPECT_TRUE(holds);
}

INSTANTIATE_TEST_SUITE_P(All, CodecConformance, testing::ValuesIn(all_encoders().begin(), all_encoders().end()),
                         [](const auto& one) { return std::string(one.param->decoder().name()); });

}  // namespace
}  // namespace bitsnap::codec
