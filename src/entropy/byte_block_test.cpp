// Tests of the block coder: every encoder with every decoder and with a naive decoder written from the specification,
// the modes it chooses, the worked example, and truncated or damaged payloads.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <vector>

#include <bitsnap/cpu.hpp>

#include "base/cpu_levels_testing.hpp"
#include "entropy/byte_block_encode.hpp"
#include "entropy/huffman.hpp"

namespace bitsnap::entropy {
namespace {

using Bytes = std::vector<std::byte>;

class BlockCoder : public testing::Test {
 protected:
  Bytes encode(const Bytes& plane) {
    Bytes out(max_encoded_plane_size(plane.size()));
    const Result<std::size_t> size = encode_plane(plane, out, scratch_);
    EXPECT_TRUE(size);
    out.resize(*size);
    out.shrink_to_fit();  // so that sanitizers see a read beyond the end
    return out;
  }

  Result<Bytes> decode(const Bytes& payload, std::size_t plane_bytes) {
    Bytes plane(plane_bytes, std::byte{0xee});
    BITSNAP_ASSIGN(const std::size_t used, decode_plane(payload, plane, scratch_));
    EXPECT_LE(used, payload.size());
    if (used != payload.size()) return fail(ErrorKind::corrupt, "bytes after the plane");
    return plane;
  }

  Scratch scratch_;
};

Bytes naive_block(const Bytes& payload, std::size_t& at, std::size_t size);

// A decoder written from docs/spec/entropy.md: bit by bit, for valid payloads only.
Bytes naive_decode(const Bytes& payload, std::size_t plane_bytes) {
  Bytes plane;
  std::size_t at = 0;
  while (plane.size() < plane_bytes) {
    const Bytes block = naive_block(payload, at, std::min(kBlockBytes, plane_bytes - plane.size()));
    plane.insert(plane.end(), block.begin(), block.end());
  }
  EXPECT_EQ(at, payload.size());
  return plane;
}

Bytes naive_block(const Bytes& payload, std::size_t& at, std::size_t size) {
  Bytes block;
  const auto byte = [&](std::size_t i) { return std::to_integer<unsigned>(payload.at(i)); };
  const unsigned mode = byte(at++);
  if (mode == 0) {
    for (std::size_t i = 0; i < size; ++i) block.push_back(payload.at(at++));
    return block;
  }
  if (mode == 1) return Bytes(size, payload.at(at++));
  if (mode == 3) {
    block.assign(size, payload.at(at++));
    const Bytes mask = naive_block(payload, at, (size + 7) / 8);
    std::vector<std::size_t> marked;
    for (std::size_t i = 0; i < size; ++i) {
      if ((std::to_integer<unsigned>(mask[i / 8]) >> (i % 8) & 1U) != 0) marked.push_back(i);
    }
    const Bytes values = marked.empty() ? Bytes{} : naive_block(payload, at, marked.size());
    for (std::size_t i = 0; i < marked.size(); ++i) block[marked[i]] = values[i];
    return block;
  }
  const std::size_t streams = size >= 1024 ? 8 : 1;
  std::vector<std::size_t> sizes;
  for (std::size_t s = 0; s < streams; ++s, at += 2) sizes.push_back(byte(at) | byte(at + 1) << 8U);
  std::vector<std::size_t> symbols;
  const std::size_t ranges = byte(at);
  for (std::size_t r = 0; r < ranges; ++r) {
    for (std::size_t s = byte(at + 1 + 2 * r); s <= byte(at + 2 + 2 * r); ++s) symbols.push_back(s);
  }
  at += 1 + 2 * ranges;
  std::map<std::pair<unsigned, unsigned>, unsigned> symbol_of;  // (length, code)
  std::vector<unsigned> lengths;
  for (std::size_t i = 0; i < symbols.size(); ++i) lengths.push_back(byte(at + i / 2) >> (i % 2 * 4) & 15U);
  at += (symbols.size() + 1) / 2;
  unsigned code = 0;
  for (unsigned length = 1; length <= 11; ++length, code *= 2) {
    for (std::size_t i = 0; i < symbols.size(); ++i) {
      if (lengths[i] == length) symbol_of[{length, code++}] = static_cast<unsigned>(symbols[i]);
    }
  }
  for (std::size_t s = 0; s < streams; ++s) {
    const std::size_t each = (size + streams - 1) / streams;
    std::size_t left = s + 1 < streams ? each : size - each * (streams - 1);
    unsigned length = 0;
    unsigned bits = 0;
    for (std::size_t bit = 0; left > 0; ++bit) {
      bits = bits << 1 | (byte(at + bit / 8) >> (7 - bit % 8) & 1U);
      const auto found = symbol_of.find({++length, bits});
      if (found == symbol_of.end()) continue;
      block.push_back(static_cast<std::byte>(found->second));
      --left;
      length = bits = 0;
    }
    at += sizes[s];
  }
  return block;
}

Bytes random_plane(std::size_t size, unsigned seed, const std::function<double(std::mt19937&)>& next) {
  std::mt19937 random(seed);
  Bytes plane(size);
  for (std::byte& byte : plane) byte = static_cast<std::byte>(static_cast<int>(next(random)));
  return plane;
}

struct Source {
  std::string name;
  std::function<double(std::mt19937&)> next;
};

std::vector<Source> sources() {
  const auto zero_with = [](unsigned one_in) {
    return [one_in](std::mt19937& random) { return random() % one_in == 0 ? random() % 256 : 0; };
  };
  return {
      {"two symbols", [](std::mt19937& random) { return random() % 2; }},
      {"mostly zero", zero_with(3)},
      {"nearly all zero", zero_with(50)},
      {"rarely nonzero", zero_with(5000)},
      {"exponents",
       [](std::mt19937& random) {
         std::normal_distribution<double> normal(0.0, 0.02);
         return 127 + std::floor(std::log2(std::abs(normal(random)) + 1e-30));
       }},
      {"steep",
       [](std::mt19937& random) {
         double value = 100;  // each value half as frequent as the previous: exceeds the length limit without one
         while (random() % 2 == 0 && value < 140) ++value;
         return value;
       }},
      {"wide",
       [](std::mt19937& random) {
         std::normal_distribution<double> normal(128, 25);
         return std::min(255.0, std::max(0.0, normal(random)));
       }},
      {"flat", [](std::mt19937& random) { return random() % 256; }},
      {"five values of 250 apart", [](std::mt19937& random) { return random() % 5 * 62; }},
  };
}

constexpr std::size_t kBlockLengths[] = {1,    2,    3,    15,    40,    300,   1023,  1024,
                                         1025, 1031, 4096, 20001, 65535, 65536, 65537, 150000};

TEST_F(BlockCoder, EveryDecoderReadsWhatEveryEncoderWrites) {
  unsigned seed = 1;
  for (const Source& source : sources()) {
    for (const std::size_t length : kBlockLengths) {
      SCOPED_TRACE(source.name + ", " + std::to_string(length));
      const Bytes plane = random_plane(length, seed++, source.next);
      force_cpu_level(CpuLevel::scalar);
      const Bytes payload = encode(plane);
      EXPECT_LE(payload.size(), max_encoded_plane_size(length));
      ASSERT_EQ(naive_decode(payload, length), plane);
      at_every_level([&] {
        EXPECT_EQ(encode(plane), payload);
        const Result<Bytes> decoded = decode(payload, length);
        ASSERT_TRUE(decoded) << decoded.error().message();
        EXPECT_EQ(*decoded, plane);
      });
      const Result<std::size_t> estimate = encoded_plane_size(plane, scratch_);
      ASSERT_TRUE(estimate);
      EXPECT_GE(*estimate, payload.size());
      EXPECT_LE(*estimate, payload.size() + 32 * (length / kBlockBytes + 1));
    }
  }
}

TEST_F(BlockCoder, AnEmptyPlaneTakesNoBytes) {
  EXPECT_TRUE(encode({}).empty());
  EXPECT_TRUE(decode({}, 0));
}

TEST_F(BlockCoder, ABlockOfOneByteTakesTwoBytes) {
  for (const std::size_t length : {std::size_t{1}, std::size_t{100}, kBlockBytes}) {
    EXPECT_EQ(encode(Bytes(length, std::byte{9})), (Bytes{std::byte{1}, std::byte{9}}));
  }
}

TEST_F(BlockCoder, AnIncompressibleBlockIsRaw) {
  const Bytes plane = random_plane(kBlockBytes, 1, [](std::mt19937& random) { return random() % 256; });
  Bytes expected{std::byte{0}};
  expected.insert(expected.end(), plane.begin(), plane.end());
  EXPECT_EQ(encode(plane), expected);
}

TEST_F(BlockCoder, EachBlockHasItsOwnMode) {
  Bytes plane(kBlockBytes, std::byte{0});
  const Bytes flat = random_plane(kBlockBytes, 1, [](std::mt19937& random) { return random() % 256; });
  const Bytes few = random_plane(kBlockBytes, 2, [](std::mt19937& random) { return random() % 4; });
  plane.insert(plane.end(), flat.begin(), flat.end());
  plane.insert(plane.end(), few.begin(), few.end());
  const Bytes payload = encode(plane);
  EXPECT_EQ(payload[0], std::byte{1});
  EXPECT_EQ(payload[2], std::byte{0});
  EXPECT_EQ(payload[2 + 1 + kBlockBytes], std::byte{2});
  EXPECT_LT(payload.size(), 2 + 1 + kBlockBytes + kBlockBytes / 4 + 64);
}

TEST_F(BlockCoder, ExponentsOfWeightsTakeAboutTheirEntropy) {
  const Bytes plane = random_plane(kBlockBytes, 1, sources()[4].next);
  std::map<std::byte, double> counts;
  for (const std::byte byte : plane) ++counts[byte];
  double bits = 0;
  for (const auto& [byte, count] : counts) bits -= count * std::log2(count / static_cast<double>(plane.size()));
  EXPECT_LT(static_cast<double>(encode(plane).size()), bits / 8 * 1.025);
}

TEST_F(BlockCoder, RefusesAnOutputThatMayBeTooSmall) {
  const Bytes plane(70000);
  Bytes out(max_encoded_plane_size(plane.size()) - 1);
  const Result<std::size_t> size = encode_plane(plane, out, scratch_);
  ASSERT_FALSE(size);
  EXPECT_EQ(size.error().kind(), ErrorKind::invalid_argument);
}

Bytes from_hex(std::string_view hex) {
  Bytes bytes;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes.push_back(static_cast<std::byte>(std::stoi(std::string(hex.substr(i, 2)), nullptr, 16)));
  }
  return bytes;
}

// The worked example of docs/spec/entropy.md.
constexpr std::string_view kExamplePlane = "7a7b7a7c7a7a7b7a7a7a7c7a7b7a7a7a7e7a7a7b7a7c7a7a7b7a7a7a7a7a7a7a";
constexpr std::string_view kExamplePayload =
    "02"
    "0600"
    "01"
    "7a7e"
    "210303"
    "4c4321c98800";

TEST_F(BlockCoder, ReadsTheExampleOfTheSpecification) {
  const Result<Bytes> plane = decode(from_hex(kExamplePayload), kExamplePlane.size() / 2);
  ASSERT_TRUE(plane) << plane.error().message();
  EXPECT_EQ(*plane, from_hex(kExamplePlane));
}

TEST_F(BlockCoder, WritesTheExampleOfTheSpecification) {
  EXPECT_EQ(encode(from_hex(kExamplePlane)), from_hex(kExamplePayload));
}

void expect_error(const Result<Bytes>& result, ErrorKind kind, std::string_view part_of_message) {
  ASSERT_FALSE(result) << part_of_message;
  EXPECT_EQ(result.error().kind(), kind);
  EXPECT_NE(result.error().message().find(part_of_message), std::string::npos) << result.error().message();
}

TEST_F(BlockCoder, RefusesAnUnknownMode) {
  expect_error(decode(from_hex("0400"), 1), ErrorKind::corrupt, "mode of the block is 4");
}

// 12 bytes: 8 at place 1, 9 at place 10, and 7 elsewhere.
TEST_F(BlockCoder, ReadsASparseBlock) {
  const Result<Bytes> plane = decode(from_hex("0307"
                                              "000204"
                                              "000809"),
                                     12);
  ASSERT_TRUE(plane) << plane.error().message();
  EXPECT_EQ(*plane, from_hex("070807070707070707070907"));
  EXPECT_EQ(*decode(from_hex("0307"
                             "0100"),
                    12),
            Bytes(12, std::byte{7}));
}

// The same block, whose mask 02 04 is sparse itself: 04 at place 1, and 02 elsewhere.
TEST_F(BlockCoder, ReadsASparseMask) {
  const Result<Bytes> plane = decode(from_hex("0307"
                                              "0302"
                                              "0002"
                                              "0004"
                                              "000809"),
                                     12);
  ASSERT_TRUE(plane) << plane.error().message();
  EXPECT_EQ(*plane, from_hex("070807070707070707070907"));
}

TEST_F(BlockCoder, RefusesASparseMaskOfASparseMask) {
  expect_error(decode(from_hex("0307"
                               "0302"
                               "0300"
                               "0001"
                               "0002"
                               "0004"
                               "000809"),
                      12),
               ErrorKind::corrupt, "not valid here");
}

TEST_F(BlockCoder, RefusesSparseValues) {
  expect_error(decode(from_hex("0307"
                               "000204"
                               "0308"
                               "0002"
                               "0009"),
                      12),
               ErrorKind::corrupt, "not valid here");
}

TEST_F(BlockCoder, RefusesAMaskThatMarksBytesAfterTheBlock) {
  expect_error(decode(from_hex("0307"
                               "000214"
                               "000809"),
                      12),
               ErrorKind::corrupt, "after its end");
}

TEST_F(BlockCoder, TakesLessThanABitPerByteIfNearlyAllBytesAreEqual) {
  const Bytes plane =
      random_plane(kBlockBytes, 1, [](std::mt19937& random) { return random() % 100 == 0 ? random() % 9 : 0; });
  const Bytes payload = encode(plane);
  EXPECT_EQ(payload[0], std::byte{3});
  EXPECT_EQ(payload[2], std::byte{3}) << "its mask is sparse too";
  EXPECT_LT(payload.size(), kBlockBytes / 8 / 6);
}

TEST_F(BlockCoder, RefusesNonzeroPadding) {
  Bytes payload = from_hex(kExamplePayload);
  const Bytes plane = from_hex(kExamplePlane);
  payload.back() ^= std::byte{1};
  expect_error(decode(payload, plane.size()), ErrorKind::corrupt, "stream 0 of 6 bytes");
}

TEST_F(BlockCoder, RefusesAStreamThatIsLongerThanItsSymbols) {
  Bytes payload = from_hex(kExamplePayload);
  payload[1] = std::byte{7};
  payload.push_back(std::byte{0});
  expect_error(decode(payload, kExamplePlane.size() / 2), ErrorKind::corrupt, "stream 0 of 7 bytes");
}

TEST_F(BlockCoder, RefusesAStreamThatIsShorterThanItsSymbols) {
  Bytes payload = from_hex(kExamplePayload);
  payload[1] = std::byte{5};
  expect_error(decode(payload, kExamplePlane.size() / 2), ErrorKind::corrupt, "stream 0 of 5 bytes");
}

TEST_F(BlockCoder, RefusesStreamsOfWrongSizes) {
  Bytes payload = encode(random_plane(8192, 1, sources()[4].next));
  ASSERT_EQ(payload[0], std::byte{2});
  payload[1] = static_cast<std::byte>(std::to_integer<unsigned>(payload[1]) - 1);  // one byte less for stream 0
  payload[3] = static_cast<std::byte>(std::to_integer<unsigned>(payload[3]) + 1);  // and one more for stream 1
  expect_error(decode(payload, 8192), ErrorKind::corrupt, "block 0 of the plane, at offset 0: stream 0");
}

TEST_F(BlockCoder, NamesTheBlockAndTheOffsetOfAnError) {
  Bytes payload = encode(Bytes(3 * kBlockBytes, std::byte{1}));
  payload[4] = std::byte{77};
  expect_error(decode(payload, 3 * kBlockBytes), ErrorKind::corrupt, "block 2 of the plane, at offset 4");
}

TEST_F(BlockCoder, RefusesEveryTruncation) {
  for (const Source& source : sources()) {
    for (const std::size_t length : {std::size_t{300}, std::size_t{2500}}) {
      const Bytes payload = encode(random_plane(length, 5, source.next));
      at_every_level([&] {
        for (std::size_t cut = 0; cut < payload.size(); ++cut) {
          const Bytes start(payload.begin(), payload.begin() + static_cast<std::ptrdiff_t>(cut));
          const Result<Bytes> plane = decode(start, length);
          ASSERT_FALSE(plane) << source.name << ", " << cut << " of " << payload.size();
          EXPECT_EQ(plane.error().kind(), ErrorKind::truncated) << plane.error().message();
        }
      });
    }
  }
}

TEST_F(BlockCoder, SurvivesEveryFlippedByteIdenticallyAtEveryLevel) {
  std::mt19937 random(6);
  for (const Source& source : sources()) {
    for (const std::size_t length : {std::size_t{500}, std::size_t{3000}}) {
      const Bytes payload = encode(random_plane(length, 7, source.next));
      for (std::size_t at = 0; at < payload.size(); ++at) {
        Bytes damaged = payload;
        damaged[at] ^= static_cast<std::byte>(1 + random() % 255);
        force_cpu_level(CpuLevel::scalar);
        const Result<Bytes> expected = decode(damaged, length);
        at_every_level([&] {
          const Result<Bytes> plane = decode(damaged, length);
          ASSERT_EQ(plane.has_value(), expected.has_value());
          if (plane) {
            ASSERT_EQ(*plane, *expected);
          }
        });
      }
    }
  }
}

}  // namespace
}  // namespace bitsnap::entropy
