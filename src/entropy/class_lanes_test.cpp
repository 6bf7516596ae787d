// Tests of values by class: every encoder with every decoder and with a naive decoder written from docs/spec/rans.md,
// its example, and truncated or damaged payloads.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include <bitsnap/cpu.hpp>

#include "base/cpu_levels_testing.hpp"
#include "entropy/class_lanes_encode.hpp"
#include "entropy/class_tables_encode.hpp"

namespace bitsnap::entropy {
namespace {

using Bytes = std::vector<std::byte>;

struct Values {
  std::vector<std::uint8_t> contexts;
  std::vector<std::uint16_t> values;

  [[nodiscard]] std::size_t rounds() const { return contexts.size() / kRansRoundElements; }
};

// Values of `contexts` contexts; their size doubles from one context to the next, and some values are much larger.
Values make_values(std::size_t rounds, unsigned contexts, unsigned seed) {
  std::mt19937_64 random(seed);
  Values made;
  for (std::size_t i = 0; i < rounds * kRansRoundElements; ++i) {
    const auto context = static_cast<unsigned>(random() % contexts);
    const std::uint64_t range = (std::uint64_t{3} << std::min(context, 13U)) + 1;
    auto value = static_cast<unsigned>((random() % range) * (random() % range) / range);
    if (random() % 100 == 0) value = static_cast<unsigned>(random() & 0xffff);
    made.contexts.push_back(static_cast<std::uint8_t>(context));
    made.values.push_back(static_cast<std::uint16_t>(value));
  }
  return made;
}

class ClassLanes : public testing::Test {
 protected:
  // Encodes in parts of at most `part` rounds.
  Bytes encode(const Values& from, const ClassTables& tables, std::size_t part = 3) {
    const Scratch::Frame frame(scratch_);
    ClassLanesEncoder encoder;
    EXPECT_TRUE(encoder.open(tables, from.rounds(), scratch_));
    for (std::size_t end = from.rounds(); end > 0;) {
      const std::size_t begin = end - std::min(part, end);
      encoder.encode(from.contexts.data() + begin * kRansRoundElements, from.values.data() + begin * kRansRoundElements,
                     end - begin, {});
      end = begin;
    }
    Bytes payload(encoder.finish());
    encoder.write(payload.data());
    return payload;
  }

  static Result<std::vector<std::uint16_t>> decode(const Bytes& payload, const Values& of, std::size_t part = 5) {
    // A separate heap block each, so that AddressSanitizer sees every access beyond it.
    const Bytes exact(payload);
    ClassLanesDecoder decoder;
    BITSNAP_TRY(decoder.open(exact));
    std::vector<std::uint16_t> values(of.contexts.size());
    for (std::size_t begin = 0; begin < of.rounds(); begin += part) {
      decoder.decode(of.contexts.data() + begin * kRansRoundElements, std::min(part, of.rounds() - begin),
                     values.data() + begin * kRansRoundElements, {});
    }
    BITSNAP_TRY(decoder.check_end());
    return values;
  }

  static ClassTables choose(const Values& from) {
    return choose_class_tables(
               {.contexts = from.contexts, .values = from.values, .others = {}, .elements = from.contexts.size()})
        .tables;
  }

  // Every level writes the same bytes, and every level reads them.
  void expect_round_trip(const Values& from, const ClassTables& tables) {
    Bytes first;
    at_every_level([&] {
      const Bytes payload = encode(from, tables);
      if (first.empty()) first = payload;
      ASSERT_EQ(payload, first);
    });
    at_every_level([&] {
      const auto decoded = decode(first, from);
      ASSERT_TRUE(decoded) << decoded.error().message();
      ASSERT_EQ(*decoded, from.values);
    });
  }

  Scratch scratch_;
};

// Written from docs/spec/rans.md: value by value, for valid payloads only.
std::vector<std::uint16_t> naive_decode(const Bytes& payload, const Values& of) {
  const auto byte = [&](std::size_t i) { return std::to_integer<unsigned>(payload.at(i)); };
  const auto number = [&](std::size_t i) { return byte(i) | byte(i + 1) << 8 | byte(i + 2) << 16 | byte(i + 3) << 24; };
  const std::size_t classes = byte(0);
  std::size_t at = 33 + 16 * classes;
  std::array<std::size_t, 7> sizes{};
  for (std::size_t& size : sizes) {
    size = number(at);
    at += 4;
  }
  const std::size_t bits = at;
  std::size_t bit = (sizes[4] + 7) / 8 * 8 - sizes[4];
  std::size_t low_byte = bits + (sizes[4] + 7) / 8;
  std::array<std::size_t, 4> streams{};
  at = low_byte + sizes[5];
  for (std::size_t group = 0; group < 4; ++group) {
    streams[group] = at;
    at += sizes[group];
  }
  std::size_t escape = at;
  at += 2 * sizes[6];
  std::vector<std::uint16_t> values;
  std::array<unsigned, 256> states{};
  for (std::size_t lane = 0; lane < 256; ++lane) {
    const std::size_t low = at + lane / 64 * 128 + lane % 64;
    states[lane] = byte(low) + 256 * byte(low + 64);
  }
  EXPECT_EQ(at + 512, payload.size());
  for (std::size_t i = 0; i < of.contexts.size(); ++i) {
    const unsigned plan = byte(1 + of.contexts[i]);
    unsigned& x = states[i % 256];
    unsigned symbol = 0;
    unsigned start = 0;
    const auto frequency = [&] { return byte(33 + 16 * (plan >> 4 & 3) + symbol); };
    while (x % 256 >= start + frequency()) {
      start += frequency();
      ++symbol;
    }
    x = frequency() * (x / 256) + x % 256 - start;
    if (x < 256) x = 256 * x + byte(streams[i % 256 / 64]++);
    const unsigned in_octave = 8U >> (plan >> 6);
    const unsigned octave = symbol == 15 || symbol < in_octave ? 0 : symbol / in_octave - 1;
    const unsigned low_bits = std::min(plan % 16 + octave, 15U);
    unsigned value = symbol - octave * in_octave;
    unsigned low = 0;
    for (unsigned k = 0; k < low_bits % 8; ++k, ++bit) low |= (byte(bits + bit / 8) >> bit % 8 & 1) << k;
    value = value << low_bits % 8 | low;
    if (low_bits >= 8) value = value << 8 | byte(low_byte++);
    if (symbol == 15) {
      value = byte(escape) | byte(escape + 1) << 8;
      escape += 2;
    }
    values.push_back(static_cast<std::uint16_t>(value));
  }
  for (const unsigned x : states) EXPECT_EQ(x, 256U);
  return values;
}

TEST_F(ClassLanes, EveryDecoderReadsWhatEveryEncoderWrites) {
  for (unsigned contexts = 1; contexts <= kClassContexts; ++contexts) {
    SCOPED_TRACE(std::to_string(contexts) + " contexts");
    const Values values = make_values(1 + contexts % 11, contexts, contexts);
    const ClassTables tables = choose(values);
    expect_round_trip(values, tables);
    if (HasFatalFailure()) return;
    EXPECT_EQ(naive_decode(encode(values, tables), values), values.values);
  }
}

TEST_F(ClassLanes, EveryShiftIsCodedWithEveryCoarseness) {
  Values values = make_values(4, 1, 9);
  // Values of all magnitudes.
  for (std::size_t i = 0; i < values.values.size(); i += 2) values.values[i] >>= i / 2 % 16;
  ClassTables tables;
  tables.frequencies[0].fill(kRansScale / kClassSymbols);
  for (unsigned plan = 0; plan < 256; ++plan) {
    if ((plan & kPlanClass) != 0) continue;
    tables.plans.fill(static_cast<std::uint8_t>(plan));
    SCOPED_TRACE("plan " + std::to_string(plan));
    expect_round_trip(values, tables);
    if (HasFatalFailure()) return;
    EXPECT_EQ(naive_decode(encode(values, tables), values), values.values);
  }
}

TEST_F(ClassLanes, SymbolsHaveTheWidthsOfTheSpecification) {
  // With coarseness 2 and no shift: 0 to 3; then 4 and 6 have width 2, 8 and 12 width 4, and so on; 192 is escaped.
  Values values{std::vector<std::uint8_t>(kRansRoundElements, 0), std::vector<std::uint16_t>(kRansRoundElements, 0)};
  ClassTables tables;
  tables.plans.fill(2 << 6);
  tables.frequencies[0].fill(kRansScale / kClassSymbols);
  const auto low_bits_of = [&](unsigned value) {
    values.values[0] = static_cast<std::uint16_t>(value);
    return load_le<std::uint32_t>(encode(values, tables).data() + 33 + 16 + 16);
  };
  for (const auto& [value, bits] :
       {std::pair{3U, 0U}, {4U, 1U}, {7U, 1U}, {8U, 2U}, {15U, 2U}, {16U, 3U}, {127U, 5U}}) {
    EXPECT_EQ(low_bits_of(value), bits) << value;
  }
  EXPECT_EQ(low_bits_of(128), 6U);
  EXPECT_EQ(low_bits_of(191), 6U);
  EXPECT_EQ(low_bits_of(192), 0U);
}

TEST_F(ClassLanes, AnyValuesAreCodedWithTablesOfOthers) {
  std::mt19937_64 random(5);
  Values values = make_values(8, 20, 1);
  ClassTables tables = choose(values);
  for (std::uint16_t& value : values.values) value = static_cast<std::uint16_t>(random());
  for (std::uint8_t& context : values.contexts) context = static_cast<std::uint8_t>(random() % kClassContexts);
  values.values[7] = 0xffff;
  expect_round_trip(values, tables);
  for (std::uint8_t& plan : tables.plans) plan = static_cast<std::uint8_t>(plan | (random() & kPlanCoarseness));
  expect_round_trip(values, tables);
}

TEST_F(ClassLanes, SymbolsWithoutSlotsAreEscaped) {
  std::mt19937_64 random(6);
  for (unsigned round = 0; round < 200; ++round) {
    SCOPED_TRACE("round " + std::to_string(round));
    ClassTables tables;
    tables.classes = 1 + round % kMaxClasses;
    for (std::uint8_t& plan : tables.plans) {
      plan = static_cast<std::uint8_t>((random() % tables.classes) * kPlanClassUnit + random() % (1 + round % 16));
      if (round % 3 != 0) plan = static_cast<std::uint8_t>(plan | (random() & kPlanCoarseness));
    }
    for (std::size_t i = 0; i < tables.classes; ++i) {
      auto& frequencies = tables.frequencies[i];
      frequencies.fill(0);
      frequencies[kClassEscape] = 1;
      // At least two symbols have slots, because one byte cannot hold the frequency 256.
      frequencies[random() % kClassEscape] = 100;
      for (unsigned left = kRansScale - 101; left > 0;) {
        std::uint8_t& frequency = frequencies[random() % kClassSymbols];
        const unsigned more = std::min<unsigned>({left, 255U - frequency, 1 + static_cast<unsigned>(random() % 99)});
        frequency = static_cast<std::uint8_t>(frequency + more);
        left -= more;
      }
    }
    expect_round_trip(make_values(3, kClassContexts, round), tables);
    if (HasFatalFailure()) return;
  }
}

TEST_F(ClassLanes, WritesTheExampleOfTheSpecification) {
  ClassTables tables;
  tables.plans.fill(0);
  tables.plans[0] = 2;
  tables.frequencies[0].fill(0);
  tables.frequencies[0][0] = tables.frequencies[0][1] = 128;
  Values values{std::vector<std::uint8_t>(kRansRoundElements, 0), std::vector<std::uint16_t>(kRansRoundElements, 0)};
  values.values[0] = 5;
  const auto filled = [](std::initializer_list<std::pair<std::size_t, unsigned>> runs) {
    Bytes bytes;
    for (const auto& [count, byte] : runs) bytes.insert(bytes.end(), count, static_cast<std::byte>(byte));
    return bytes;
  };
  const Bytes expected =
      filled({{1, 1},  {1, 2},    {31, 0}, {2, 0x80}, {14, 0}, {16, 0}, {1, 0},  {1, 2},  {10, 0}, {1, 1},
              {63, 0}, {1, 0x80}, {63, 0}, {64, 2},   {64, 0}, {64, 2}, {64, 0}, {64, 2}, {64, 0}, {64, 2}});
  at_every_level([&] { EXPECT_EQ(encode(values, tables), expected); });
}

TEST_F(ClassLanes, SizesStayNearTheEntropyOfTheSymbols) {
  const Values values = make_values(1024, 12, 3);
  const ClassChoice choice = choose_class_tables({.contexts = std::span(values.contexts).first(8192),
                                                  .values = std::span(values.values).first(8192),
                                                  .others = {},
                                                  .elements = values.contexts.size()});
  const std::size_t size = encode(values, choice.tables).size();
  const double estimated = static_cast<double>(choice.cost) / (1 << kCostBits) / 8 * 1024 * 256 / 8192;
  EXPECT_NEAR(static_cast<double>(size), estimated, estimated / 50);
}

TEST_F(ClassLanes, NoSymbolHasMoreThanFifteenLowBits) {
  // Symbol 14 without and with the shift 15, the coarseness 3 and low bits that are all set except one.
  Values values{std::vector<std::uint8_t>(kRansRoundElements, 0), std::vector<std::uint16_t>(kRansRoundElements, 0)};
  values.contexts[0] = 1;
  values.values[0] = 14;
  ClassTables tables;
  tables.plans.fill(0);
  tables.frequencies[0].fill(kRansScale / kClassSymbols);
  Bytes payload = encode(values, tables);
  payload[2] = static_cast<std::byte>(15 | 3 << 6);
  constexpr std::size_t kSizes = 33 + kClassSymbols;
  store_le(payload.data() + kSizes + 16, std::uint32_t{7});
  store_le(payload.data() + kSizes + 20, std::uint32_t{1});
  const std::array low{std::byte{0xfe}, std::byte{0xfe}};
  payload.insert(payload.begin() + kSizes + 28, low.begin(), low.end());
  values.values[0] = 0xfffe;
  EXPECT_EQ(naive_decode(payload, values), values.values);
  at_every_level([&] {
    const auto decoded = decode(payload, values);
    ASSERT_TRUE(decoded) << decoded.error().message();
    EXPECT_EQ(*decoded, values.values);
  });
}

// Most values are small, and a few are a thousand times as large.
Values make_squares(std::size_t rounds) {
  std::mt19937_64 random(4);
  Values made;
  for (std::size_t i = 0; i < rounds * kRansRoundElements; ++i) {
    made.contexts.push_back(static_cast<std::uint8_t>(random() % 4));
    const auto bell = [&] { return static_cast<int>(random() % 64 + random() % 64); };
    const int root = bell() - bell();
    made.values.push_back(static_cast<std::uint16_t>(root * root >> (2 * made.contexts.back())));
  }
  return made;
}

bool has_octaves(const ClassTables& tables) {
  return std::ranges::any_of(tables.plans, [](std::uint8_t plan) { return (plan & kPlanCoarseness) != 0; });
}

TEST_F(ClassLanes, UsesOctavesIfTheySaveEnough) {
  const Values squares = make_squares(256);
  ClassSample sample{.contexts = std::span(squares.contexts).first(8192),
                     .values = std::span(squares.values).first(8192),
                     .others = {},
                     .elements = squares.contexts.size(),
                     .per_octave_gain = 128};
  const ClassTables tables = choose_class_tables(sample).tables;
  EXPECT_TRUE(has_octaves(tables));
  sample.per_octave_gain = 1;  // octaves would have to save everything
  const ClassTables even = choose_class_tables(sample).tables;
  EXPECT_FALSE(has_octaves(even));
  EXPECT_LT(encode(squares, tables).size() * 129, encode(squares, even).size() * 128);
  expect_round_trip(squares, tables);
}

TEST_F(ClassLanes, UsesNoOctavesIfAllValuesAreSymbols) {
  std::mt19937_64 random(4);
  Values values = make_values(32, 3, 1);
  for (std::uint16_t& value : values.values) value = static_cast<std::uint16_t>(random() % 15);
  EXPECT_FALSE(has_octaves(choose(values)));
}

TEST_F(ClassLanes, VeryRareSymbolsHaveNoSlots) {
  Values values{std::vector<std::uint8_t>(32 * kRansRoundElements, 0),
                std::vector<std::uint16_t>(32 * kRansRoundElements, 0)};
  for (std::size_t i = 0; i < values.values.size(); ++i) values.values[i] = i % 2 == 0 ? 0 : 14;
  values.values[1] = 5;
  const ClassTables tables = choose(values);
  EXPECT_EQ(std::ranges::count(tables.frequencies[0], 0), kClassSymbols - 3);
  expect_round_trip(values, tables);
}

class DamagedClassLanes : public ClassLanes {
 protected:
  DamagedClassLanes() : values_(make_values(3, 16, 2)), payload_(encode(values_, choose(values_))) {}

  Values values_;
  Bytes payload_;
};

TEST_F(DamagedClassLanes, AreRefusedAtEveryTruncation) {
  for (std::size_t size = 0; size < payload_.size(); ++size) {
    const auto decoded = decode(Bytes(payload_.begin(), payload_.begin() + static_cast<std::ptrdiff_t>(size)), values_);
    ASSERT_FALSE(decoded) << size;
    ASSERT_EQ(decoded.error().kind(), ErrorKind::truncated) << size << ": " << decoded.error().message();
  }
  payload_.push_back(std::byte{0});
  const auto longer = decode(payload_, values_);
  ASSERT_FALSE(longer);
  EXPECT_EQ(longer.error().kind(), ErrorKind::corrupt);
}

TEST_F(DamagedClassLanes, AreRefusedIfTheyEscapeMoreValuesThanTheyHold) {
  ClassTables tables = choose(values_);
  std::fill(values_.contexts.begin(), values_.contexts.end(), std::uint8_t{0});
  std::fill(values_.values.begin(), values_.values.end(), std::uint16_t{0xffff});
  tables.plans[0] &= kPlanClass;
  Bytes damaged = encode(values_, tables);
  const std::size_t count_at = 33 + 16 * std::to_integer<std::size_t>(damaged[0]) + 24;
  const std::size_t escapes = load_le<std::uint32_t>(damaged.data() + count_at);
  ASSERT_EQ(escapes, values_.values.size());
  store_le(damaged.data() + count_at, std::uint32_t{0});
  damaged.erase(damaged.end() - static_cast<std::ptrdiff_t>(512 + 2 * escapes), damaged.end() - 512);
  at_every_level([&] {
    const auto decoded = decode(damaged, values_);
    ASSERT_FALSE(decoded);
    EXPECT_EQ(decoded.error().kind(), ErrorKind::corrupt);
  });
}

TEST_F(DamagedClassLanes, GiveTheSameVerdictAndValuesAtEveryLevel) {
  std::mt19937_64 random(8);
  ClassTables coarse = choose(values_);
  for (std::uint8_t& plan : coarse.plans) plan = static_cast<std::uint8_t>(plan | (random() & kPlanCoarseness));
  const Bytes of_octaves = encode(values_, coarse);
  for (int round = 0; round < 3000; ++round) {
    Bytes damaged = round % 4 < 2 ? payload_ : of_octaves;
    // Half of the damage hits the fields at the front, which affect the most.
    const std::size_t range = round % 2 == 0 ? damaged.size() : std::min<std::size_t>(200, damaged.size());
    for (std::uint64_t i = 0; i <= random() % 3; ++i) damaged[random() % range] = static_cast<std::byte>(random());
    force_cpu_level(CpuLevel::scalar);
    const auto expected = decode(damaged, values_);
    at_every_level([&] {
      const auto found = decode(damaged, values_);
      ASSERT_EQ(found.has_value(), expected.has_value()) << round;
      if (found) {
        ASSERT_EQ(*found, *expected) << round;
      } else {
        ASSERT_EQ(found.error().kind(), expected.error().kind()) << round;
      }
    });
  }
}

TEST_F(DamagedClassLanes, AreRefusedWithTheWrongField) {
  const std::size_t classes = std::to_integer<std::size_t>(payload_[0]);
  const std::size_t sizes = 33 + 16 * classes;
  struct Damage {
    std::size_t at;
    unsigned value;
    const char* words;
  };
  for (const auto& [at, value, words] :
       {Damage{0, 0, "0 classes"}, Damage{0, 5, "5 classes"},
        Damage{33, std::to_integer<unsigned>(payload_[33]) ^ 1, "frequencies of class 0 sum to"},
        Damage{payload_.size() - 64, 0, "state of lane 0 of group 3 is below 256"}}) {
    Bytes damaged = payload_;
    damaged[at] = static_cast<std::byte>(value);
    const auto decoded = decode(damaged, values_);
    ASSERT_FALSE(decoded) << words;
    EXPECT_EQ(decoded.error().kind(), ErrorKind::corrupt);
    EXPECT_NE(decoded.error().message().find(words), std::string::npos) << decoded.error().message();
  }
  Bytes of_one_class = encode(make_values(1, 1, 1), choose(make_values(1, 1, 1)));
  ASSERT_EQ(of_one_class[0], std::byte{1});
  of_one_class[3] = std::byte{0xb0};
  const auto of_other = decode(of_one_class, make_values(1, 1, 1));
  ASSERT_FALSE(of_other);
  EXPECT_NE(of_other.error().message().find("plan of context 2 has class 3"), std::string::npos);
  // One low bit less: the first byte then holds a bit that must be 0, or the last value lacks a bit.
  Bytes fewer = payload_;
  const auto bits = load_le<std::uint32_t>(fewer.data() + sizes + 16);
  ASSERT_GT(bits, 0U);
  store_le(fewer.data() + sizes + 16, bits - 1);
  EXPECT_FALSE(decode(fewer, values_));
}

}  // namespace
}  // namespace bitsnap::entropy
