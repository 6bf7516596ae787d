// Tests of the lane coder over split elements: every encoder with every decoder and with a naive decoder written from
// the specification, its examples, its sizes, and truncated or damaged payloads.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <vector>

#include <bitsnap/cpu.hpp>

#include "base/cpu_levels_testing.hpp"
#include "entropy/rans.hpp"
#include "entropy/split_elements_encode.hpp"

namespace bitsnap::entropy {
namespace {

using Bytes = std::vector<std::byte>;

constexpr std::size_t kSizesBytes = 20;

// A decoder written from docs/spec/rans.md: element by element, for valid payloads only.
Bytes naive_decode(const Bytes& payload, const SplitShape& shape) {
  const auto byte = [&](std::size_t i) { return std::to_integer<unsigned>(payload.at(i)); };
  const auto number = [&](std::size_t i) { return byte(i) | byte(i + 1) << 8 | byte(i + 2) << 16 | byte(i + 3) << 24; };
  const std::size_t rest_bytes = shape.element_bytes - 1;
  std::size_t at = kSizesBytes + shape.elements * rest_bytes;
  struct Table {
    std::map<unsigned, std::array<unsigned, 3>> by_last_slot;  // symbol or 256, start, frequency
  };
  std::vector<Table> tables((shape.elements + 65535) / 65536);
  for (Table& table : tables) {
    const std::size_t count = byte(at);
    unsigned start = 0;
    for (std::size_t i = 0; i < count; ++i) {
      unsigned frequency = byte(at + 1 + count + i);
      if (frequency == 0) frequency = 256;
      table.by_last_slot[start + frequency - 1] = {byte(at + 1 + i), start, frequency};
      start += frequency;
    }
    if (start < 256) table.by_last_slot[255] = {256, start, 256 - start};
    at += 1 + 2 * count;
  }
  std::array<std::size_t, 4> streams{};
  for (std::size_t group = 0; group < 4; ++group) {
    streams[group] = at;
    at += number(4 * group);
  }
  std::size_t escapes = at;
  at += number(16);
  std::array<unsigned, 256> states{};
  for (std::size_t lane = 0; lane < 256; ++lane) {
    const std::size_t low = at + lane / 64 * 128 + lane % 64;
    states[lane] = byte(low) + 256 * byte(low + 64);
  }
  EXPECT_EQ(at + 512, payload.size());

  Bytes out;
  for (std::size_t i = 0; i < (shape.elements + 255) / 256 * 256; ++i) {
    const Table& table = tables[std::min(i, shape.elements - 1) / 65536];
    unsigned symbol = table.by_last_slot.begin()->second[0];
    if (table.by_last_slot.begin()->second[2] != 256) {
      unsigned& x = states[i % 256];
      const unsigned slot = x % 256;
      const auto [coded, start, frequency] = table.by_last_slot.lower_bound(slot)->second;
      symbol = coded == 256 ? byte(escapes++) : coded;
      x = frequency * (x / 256) + slot - start;
      if (x < 256) x = 256 * x + byte(streams[i % 256 / 64]++);
    }
    if (i >= shape.elements) continue;
    const auto width = static_cast<unsigned>(8 * shape.element_bytes);
    std::uint64_t element = std::uint64_t{symbol} << (width - 8);
    for (std::size_t k = 0; k < rest_bytes; ++k) {
      element |= std::uint64_t{byte(kSizesBytes + i * rest_bytes + k)} << (8 * k);
    }
    if (shape.rotated) element = element >> 1 | (element & 1) << (width - 1);
    for (std::size_t k = 0; k < shape.element_bytes; ++k)
      out.push_back(static_cast<std::byte>(element >> (8 * k) & 255));
  }
  for (const unsigned x : states) EXPECT_EQ(x, 256U);
  return out;
}

// Elements with random lower bytes and the symbols of `symbol_of`.
Bytes make_elements(const SplitShape& shape, const std::function<unsigned(std::size_t, std::mt19937&)>& symbol_of) {
  std::mt19937 random(static_cast<unsigned>(shape.elements));
  Bytes bytes;
  const auto width = static_cast<unsigned>(8 * shape.element_bytes);
  for (std::size_t i = 0; i < shape.elements; ++i) {
    const std::uint64_t mask = (std::uint64_t{1} << (width - 8)) - 1;
    std::uint64_t element = std::uint64_t{symbol_of(i, random)} << (width - 8) | (random() & mask);
    if (shape.rotated) element = element >> 1 | (element & 1) << (width - 1);
    for (std::size_t k = 0; k < shape.element_bytes; ++k) {
      bytes.push_back(static_cast<std::byte>(element >> (8 * k) & 255));
    }
  }
  return bytes;
}

unsigned normal_symbol(std::size_t, std::mt19937& random) {
  unsigned smaller_by = 0;
  for (unsigned bits = static_cast<unsigned>(random()); (bits & 1) != 0; bits >>= 1) ++smaller_by;
  return 121 + (static_cast<unsigned>(random()) % 3) - smaller_by;
}

// Includes zeros and a few arbitrary symbols.
unsigned mixed_symbol(std::size_t i, std::mt19937& random) {
  if (random() % 5 == 0) return 0;
  if (random() % 100 == 0) return static_cast<unsigned>(random()) % 256;
  return normal_symbol(i, random);
}

class SplitElements : public testing::Test {
 protected:
  std::optional<Bytes> encode(const Bytes& elements, const SplitShape& shape) {
    Bytes out(max_split_size(shape));
    const auto size = encode_split(elements, shape, out, scratch_);
    EXPECT_TRUE(size);
    if (!*size) return std::nullopt;
    EXPECT_LT(**size, elements.size());
    out.resize(**size);
    out.shrink_to_fit();  // so that sanitizers see a read beyond the end
    return out;
  }

  Result<Bytes> decode(const Bytes& payload, const SplitShape& shape) {
    Bytes out(shape.elements * shape.element_bytes, std::byte{0xee});
    BITSNAP_TRY(decode_split(payload, shape, out, scratch_));
    return out;
  }

  // Encodes and decodes at every level and with the naive decoder; returns the payload, which all levels share.
  std::optional<Bytes> cross(const Bytes& elements, const SplitShape& shape) {
    std::optional<Bytes> payload;
    at_every_level([&] {
      auto encoded = encode(elements, shape);
      if (cpu_level() == CpuLevel::scalar)
        payload = std::move(encoded);
      else
        EXPECT_TRUE(encoded == payload) << "the bytes differ from those of the scalar level";
    });
    if (!payload) return payload;
    EXPECT_TRUE(naive_decode(*payload, shape) == elements) << "read naively";
    at_every_level([&] {
      const auto decoded = decode(*payload, shape);
      EXPECT_TRUE(decoded) << decoded.error().message();
      EXPECT_TRUE(decoded && *decoded == elements);
    });
    return payload;
  }

  Scratch scratch_;
};

TEST_F(SplitElements, EveryDecoderReadsWhatEveryEncoderWrites) {
  for (const std::size_t element_bytes : {1U, 2U, 4U}) {
    for (const bool rotated : {false, true}) {
      if (rotated && element_bytes == 1) continue;
      for (const std::size_t elements : {6000U, 65535U, 65536U, 65537U, 131072U + 300, 262144U}) {
        // For elements of one byte, the accepted loss includes the bits stored beside them.
        const SplitShape shape{.elements = elements,
                               .element_bytes = element_bytes,
                               .rotated = rotated,
                               .beside_bits = element_bytes == 1 ? 24U : 0U};
        SCOPED_TRACE(std::to_string(elements) + " of " + std::to_string(element_bytes) + (rotated ? ", rotated" : ""));
        EXPECT_TRUE(cross(make_elements(shape, normal_symbol), shape));
        EXPECT_TRUE(cross(make_elements(shape, mixed_symbol), shape));
      }
    }
  }
}

TEST_F(SplitElements, EveryLengthOfTheLastRoundIsCoded) {
  for (std::size_t elements = 8192; elements <= 8192 + 256; elements += 3) {
    const SplitShape shape{.elements = elements, .element_bytes = 2, .rotated = true};
    EXPECT_TRUE(cross(make_elements(shape, mixed_symbol), shape)) << elements;
  }
}

TEST_F(SplitElements, EveryNumberOfSymbolsIsCoded) {
  for (unsigned symbols = 1; symbols <= 40; ++symbols) {
    for (const unsigned first : {0U, 100U, 256 - symbols}) {
      const SplitShape shape{.elements = 66000, .element_bytes = 4, .rotated = true};
      const auto payload = cross(
          make_elements(shape, [=](std::size_t,
                                   std::mt19937& random) { return first + static_cast<unsigned>(random()) % symbols; }),
          shape);
      // One symbol is refused; up to 15 have a table; with slightly more, escapes cost too much.
      if (symbols <= 15 || symbols >= 30) {
        EXPECT_EQ(payload.has_value(), symbols > 1 && symbols <= 15) << symbols;
      }
    }
  }
}

TEST_F(SplitElements, ABlockOfOneSymbolTakesNoStreamBytes) {
  const SplitShape shape{.elements = 3 * 65536, .element_bytes = 2, .rotated = true};
  const auto second_alone = [](std::size_t i, std::mt19937& random) {
    return i / 65536 == 1 ? 120U : normal_symbol(i, random);
  };
  const auto payload = cross(make_elements(shape, second_alone), shape);
  ASSERT_TRUE(payload);
  const SplitShape one{.elements = 65536, .element_bytes = 2, .rotated = true};
  const auto of_one = cross(make_elements(one, normal_symbol), one);
  ASSERT_TRUE(of_one);
  const std::size_t coded = of_one->size() - 65536 - kSizesBytes - kRansStateBytes;
  EXPECT_LE(payload->size(), 3 * 65536 + kSizesBytes + kRansStateBytes + 2 * coded + coded / 50);
}

TEST_F(SplitElements, AnElementThatTheSampleMissesIsCoded) {
  for (const std::size_t where : {0U, 15U, 16U, 511U, 65535U, 65536U, 80000U}) {
    const SplitShape shape{.elements = 80001, .element_bytes = 2, .rotated = false};
    EXPECT_TRUE(
        cross(make_elements(shape, [=](std::size_t i, std::mt19937&) { return i == where ? 7U : 120U; }), shape))
        << where;
  }
}

TEST_F(SplitElements, TakeAtMostOnePercentMoreThanTheirEntropy) {
  const SplitShape shape{.elements = 262144, .element_bytes = 2, .rotated = true};
  const Bytes elements = make_elements(shape, normal_symbol);
  std::array<double, 256> counts{};
  for (std::size_t i = 0; i < shape.elements; ++i) {
    const auto element = load_le<std::uint16_t>(elements.data() + 2 * i);
    ++counts[element >> 7 & 255];
  }
  double bits = 8.0 * static_cast<double>(shape.elements);
  for (const double count : counts) {
    if (count > 0) bits += count * std::log2(static_cast<double>(shape.elements) / count);
  }
  const auto payload = encode(elements, shape);
  ASSERT_TRUE(payload);
  EXPECT_LE(static_cast<double>(payload->size()) * 8, bits * 1.008);
}

TEST_F(SplitElements, TakeTheSameForAnyOrderOfAMatrixsColumns) {
  const SplitShape shape{.elements = 262144, .element_bytes = 2, .rotated = true};
  const auto size_with = [&](std::size_t factor) {
    const auto symbol_of = [&](std::size_t i, std::mt19937& random) {
      return normal_symbol(i, random) - (i * factor % 512 < 16 ? 10 : 0);
    };
    const auto payload = encode(make_elements(shape, symbol_of), shape);
    return payload ? payload->size() : 2 * shape.elements;
  };
  EXPECT_LE(size_with(1), size_with(97) + size_with(97) / 100);
}

TEST_F(SplitElements, AreRefusedIfTheirLowerBytesAreNotRandom) {
  SplitShape shape{.elements = 65536, .element_bytes = 4, .rotated = true};
  for (std::size_t k = 0; k < 3; ++k) {
    Bytes elements = make_elements(shape, normal_symbol);
    for (std::size_t i = 0; i < shape.elements; ++i) elements[4 * i + k] &= std::byte{0xf0};
    EXPECT_FALSE(encode(elements, shape)) << "byte " << k;
  }
}

TEST_F(SplitElements, AreRefusedIfFifteenSymbolsAreTooFew) {
  const SplitShape shape{.elements = 65536, .element_bytes = 2, .rotated = true};
  const auto wide = [](std::size_t, std::mt19937& random) { return static_cast<unsigned>(random()) % 64; };
  EXPECT_FALSE(encode(make_elements(shape, wide), shape));
}

TEST_F(SplitElements, AreRefusedIfThereIsOneSymbol) {
  const SplitShape shape{.elements = 70000, .element_bytes = 2, .rotated = true};
  EXPECT_FALSE(encode(make_elements(shape, [](std::size_t, std::mt19937&) { return 5U; }), shape));
}

Bytes hand_made(std::initializer_list<int> rest_and_table, unsigned high) {
  Bytes payload(kSizesBytes);
  for (const int byte : rest_and_table) payload.push_back(static_cast<std::byte>(byte));
  for (int group = 0; group < 4; ++group) {
    payload.insert(payload.end(), 64, std::byte{0});
    payload.insert(payload.end(), 64, static_cast<std::byte>(high));
  }
  return payload;
}

TEST_F(SplitElements, ReadTheExamplesOfTheSpecification) {
  const auto expect = [&](const Bytes& payload, std::size_t elements, const Bytes& expected) {
    const SplitShape shape{.elements = elements, .element_bytes = 2, .rotated = true};
    at_every_level([&] {
      const auto decoded = decode(payload, shape);
      ASSERT_TRUE(decoded) << decoded.error().message();
      EXPECT_EQ(*decoded, expected);
    });
  };
  expect(hand_made({0x00, 0x01, 1, 0x7f, 0}, 1), 2,
         {std::byte{0x80}, std::byte{0x3f}, std::byte{0x80}, std::byte{0xbf}});
  expect(hand_made({0x00, 1, 0x7f, 0x80}, 2), 1, {std::byte{0x80}, std::byte{0x3f}});
}

// Any symbols in any order, and no escape: the encoder never writes such a table.
TEST_F(SplitElements, ReadTablesThatTheEncoderNeverWrites) {
  // Symbols 9 and 5 have half of the slots each; from the state 256, both lead to 512 plus their start.
  Bytes payload = hand_made({0x00, 0x00, 2, 9, 5, 128, 128}, 2);
  payload[payload.size() - 512 + 1] = std::byte{128};  // lane 1 of group 0 is in the slots of 5
  const SplitShape shape{.elements = 2, .element_bytes = 2, .rotated = false};
  at_every_level([&] {
    const auto decoded = decode(payload, shape);
    ASSERT_TRUE(decoded) << decoded.error().message();
    EXPECT_EQ(*decoded, (Bytes{std::byte{0}, std::byte{9}, std::byte{0}, std::byte{5}}));
  });
}

class DamagedSplitElements : public SplitElements {
 protected:
  const SplitShape shape_{.elements = 6000, .element_bytes = 2, .rotated = true};

  void expect_refused(const Bytes& payload, ErrorKind kind, std::string_view part_of_message) {
    at_every_level([&] {
      const auto decoded = decode(payload, shape_);
      ASSERT_FALSE(decoded) << part_of_message;
      EXPECT_EQ(decoded.error().kind(), kind);
      EXPECT_NE(decoded.error().message().find(part_of_message), std::string::npos) << decoded.error().message();
    });
  }

  Bytes sound() {
    auto payload = encode(make_elements(shape_, mixed_symbol), shape_);
    EXPECT_TRUE(payload);
    return payload.value_or(Bytes{});
  }
};

TEST_F(DamagedSplitElements, AreRefusedAtEveryTruncation) {
  const Bytes payload = sound();
  for (std::size_t cut = 0; cut < payload.size(); ++cut) {
    Bytes shorter(payload.begin(), payload.begin() + static_cast<std::ptrdiff_t>(cut));
    shorter.shrink_to_fit();
    const auto decoded = decode(shorter, shape_);
    ASSERT_FALSE(decoded) << cut;
    EXPECT_EQ(decoded.error().kind(), ErrorKind::truncated) << cut;
  }
}

TEST_F(DamagedSplitElements, AreRefusedWithExtraBytes) {
  Bytes payload = sound();
  payload.push_back(std::byte{0});
  expect_refused(payload, ErrorKind::corrupt, "1 bytes after the states");
}

TEST_F(DamagedSplitElements, AreRefusedWithAStateBelowTheMinimum) {
  Bytes payload = sound();
  payload[payload.size() - 1] = std::byte{0};
  expect_refused(payload, ErrorKind::corrupt, "lane 63 of group 3");
}

TEST_F(DamagedSplitElements, AreRefusedIfStreamSizesAreExchanged) {
  Bytes payload = sound();
  store_le(payload.data(), load_le<std::uint32_t>(payload.data()) + 1);
  store_le(payload.data() + 4, load_le<std::uint32_t>(payload.data() + 4) - 1);
  expect_refused(payload, ErrorKind::corrupt, "stream 0");
}

TEST_F(DamagedSplitElements, AreRefusedIfAStateEndsElsewhere) {
  Bytes payload = hand_made({0x00, 1, 0x7f, 0x80}, 2);
  payload[payload.size() - 512 + 130] = std::byte{1};  // 513 leads to 257 without a stream byte
  at_every_level([&] {
    const auto decoded = decode(payload, {.elements = 1, .element_bytes = 2, .rotated = true});
    ASSERT_FALSE(decoded);
    EXPECT_EQ(decoded.error().kind(), ErrorKind::corrupt);
    EXPECT_NE(decoded.error().message().find("lane 2 of group 1 ends as 257"), std::string::npos)
        << decoded.error().message();
  });
}

// Nearly every element takes a stream byte, and there are none. AddressSanitizer sees a read beyond the payload.
TEST_F(DamagedSplitElements, AreRefusedIfTheyNeedMoreBytesThanTheyHave) {
  const SplitShape shape{.elements = 65536, .element_bytes = 2, .rotated = false};
  for (const unsigned symbols : {15U, 2U}) {
    Bytes payload(kSizesBytes + 65536);
    payload.push_back(static_cast<std::byte>(symbols));
    for (unsigned i = 0; i < symbols; ++i) payload.push_back(static_cast<std::byte>(i));
    for (unsigned i = 0; i < symbols; ++i) payload.push_back(std::byte{1});  // the escape has nearly all slots
    payload.insert(payload.end(), 512, std::byte{3});
    payload.shrink_to_fit();
    at_every_level([&] {
      const auto decoded = decode(payload, shape);
      ASSERT_FALSE(decoded);
      EXPECT_EQ(decoded.error().kind(), ErrorKind::corrupt);
    });
  }
}

TEST_F(DamagedSplitElements, AreRefusedWithOneEscapeTooMany) {
  Bytes payload = sound();
  store_le(payload.data() + 16, load_le<std::uint32_t>(payload.data() + 16) + 1);
  payload.insert(payload.end() - 512, std::byte{0});
  expect_refused(payload, ErrorKind::corrupt, "escapes");
}

TEST_F(DamagedSplitElements, NameTheBlockOfABadTable) {
  Bytes payload = sound();
  payload[kSizesBytes + shape_.elements] = std::byte{99};
  expect_refused(payload, ErrorKind::corrupt, "table of block 0: table has 99 symbols");
}

TEST_F(DamagedSplitElements, GiveTheSameVerdictAtEveryLevel) {
  const Bytes payload = sound();
  std::mt19937 random(5);
  int refused = 0;
  for (int round = 0; round < 3000; ++round) {
    Bytes damaged = payload;
    for (std::size_t hits = 1 + random() % 3; hits > 0; --hits) {
      // Half of the damage hits the fields before and after the lower bytes.
      std::size_t at = random() % damaged.size();
      if (random() % 2 == 0 && at >= kSizesBytes) at = damaged.size() - 1 - random() % (damaged.size() - 6020);
      damaged[at] = static_cast<std::byte>(random());
    }
    std::optional<Bytes> expected;
    at_every_level([&] {
      const auto decoded = decode(damaged, shape_);
      if (!decoded) {
        ASSERT_TRUE(decoded.error().kind() == ErrorKind::corrupt || decoded.error().kind() == ErrorKind::truncated);
      }
      const std::optional<Bytes> got = decoded ? std::optional<Bytes>(*decoded) : std::nullopt;
      if (cpu_level() == CpuLevel::scalar) expected = got;
      ASSERT_TRUE(got == expected) << "round " << round;
    });
    if (!expected) ++refused;
  }
  EXPECT_GT(refused, 500);
}

}  // namespace
}  // namespace bitsnap::entropy
