// Tests of the lane coder's kernels, one round at a time: every state and every frequency, at every CPU level.
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include <bitsnap/cpu.hpp>

#include "base/cpu_dispatch.hpp"
#include "entropy/rans_decode_kernel.hpp"
#include "entropy/rans_encode_kernel.hpp"
#include "entropy/rans_table_encode.hpp"

namespace bitsnap::entropy {
namespace {

constexpr std::size_t kRound = 256;

// A table of the symbols 0 and 1; the first has `frequency` slots.
RansTable table_of(unsigned frequency) {
  RansTable table;
  table.count = 1;
  table.symbols[0] = 0;
  table.frequencies[0] = static_cast<std::uint16_t>(frequency);
  table.escape = kRansScale - frequency;
  return table;
}

class RansKernel : public testing::TestWithParam<CpuLevel> {
 protected:
  void SetUp() override {
    if (!has_cpu_level(GetParam())) GTEST_SKIP() << "this machine does not have it";
  }
};

// Encodes one round of one symbol from the states x, x + 1, ... and compares each with plain division.
void expect_division(CpuLevel level, const RansEncodeTable& table, unsigned symbol, unsigned frequency, unsigned start,
                     unsigned first_state) {
  std::vector<std::uint8_t> elements(2 * kRound, 0);
  for (std::size_t i = 0; i < kRound; ++i) elements[2 * i + 1] = static_cast<std::uint8_t>(symbol);
  std::vector<std::uint8_t> rest(kRound);
  std::vector<std::uint8_t> room(5 * 1024);
  RansEncoding at;
  for (std::size_t group = 0; group < 4; ++group) at.out[group] = room.data() + (group + 1) * 1024;
  at.escapes = room.data() + room.size();
  for (std::size_t lane = 0; lane < kRound; ++lane) {
    const std::size_t state = first_state + lane;
    at.low[lane / 64][lane % 64] = static_cast<std::uint8_t>(state);
    at.high[lane / 64][lane % 64] = static_cast<std::uint8_t>(state >> 8);
  }
  kernels<RansEncodeKernels>(level).encode[1][0](at, table, elements.data(), 1, rest.data());
  for (std::size_t group = 0; group < 4; ++group) {
    const std::uint8_t* written = room.data() + (group + 1) * 1024;
    for (std::size_t lane = 64; lane-- > 0;) {
      unsigned x = static_cast<unsigned>(first_state + group * 64 + lane);
      if (x >= 256 * frequency) {
        ASSERT_EQ(*--written, x % 256) << "state " << x << ", frequency " << frequency;
        x /= 256;
      }
      const unsigned expected = 256 * (x / frequency) + x % frequency + start;
      const unsigned found = at.high[group][lane] * 256U + at.low[group][lane];
      ASSERT_EQ(found, expected) << "state " << x << ", frequency " << frequency;
    }
    ASSERT_EQ(written, at.out[group]);
  }
}

TEST_P(RansKernel, DividesEveryStateByEveryFrequency) {
  for (unsigned frequency = 1; frequency < 256; ++frequency) {
    RansEncodeTable table;
    fill_encode_table(table_of(frequency), table);
    for (unsigned state = 256; state < 65536; state += kRound) {
      expect_division(GetParam(), table, 0, frequency, 0, state);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(RansKernel, DividesByTheFrequencyOfTheEscape) {
  for (unsigned frequency = 1; frequency < 256; ++frequency) {
    RansEncodeTable table;
    fill_encode_table(table_of(256 - frequency), table);
    for (unsigned state = 256; state < 65536; state += 16 * kRound) {
      expect_division(GetParam(), table, 77, frequency, 256 - frequency, state);
      if (HasFatalFailure()) return;
    }
  }
}

// Decodes one round from every state and compares it with the specification: the slots from `frequency` on belong to
// the escape or to the symbol 44.
void expect_decoding(CpuLevel level, bool escapes_are_coded) {
  for (unsigned frequency = 1; frequency < 256; ++frequency) {
    RansDecodeTable table{};
    table.escape_index = escapes_are_coded ? 1 : 16;
    for (std::size_t index = 0; index < 16; ++index) {
      table.symbols[index] = index == 0 ? 33 : 44;
      table.starts[index] = static_cast<std::uint8_t>(index == 0 ? 0 : frequency);
      table.frequencies[index] = static_cast<std::uint8_t>(index == 0 ? frequency : 256 - frequency);
    }
    std::vector<std::uint8_t> stream(1024);
    for (std::size_t i = 0; i < stream.size(); ++i) stream[i] = static_cast<std::uint8_t>(i * 7 + 1);
    const std::vector<std::uint8_t> rest(kRound + 64);
    std::vector<std::uint8_t> elements(2 * kRound);
    for (unsigned first = 256; first < 65536; first += kRound) {
      RansDecoding at;
      for (std::size_t group = 0; group < 4; ++group) at.in[group] = stream.data() + 100 * group;
      at.escapes = stream.data() + 400;
      at.limit = stream.data() + stream.size() - 64;
      for (std::size_t lane = 0; lane < kRound; ++lane) {
        at.low[lane / 64][lane % 64] = static_cast<std::uint8_t>(first + lane);
        at.high[lane / 64][lane % 64] = static_cast<std::uint8_t>((first + lane) >> 8);
      }
      kernels<RansDecodeKernels>(level).decode[1][0](at, table, rest.data(), 1, elements.data());
      const std::uint8_t* escapes = stream.data() + 400;
      for (std::size_t group = 0; group < 4; ++group) {
        const std::uint8_t* in = stream.data() + 100 * group;
        for (std::size_t lane = 0; lane < 64; ++lane) {
          const unsigned state = static_cast<unsigned>(first + group * 64 + lane);
          const unsigned slot = state % 256;
          const bool escaped = slot >= frequency;
          unsigned x = (escaped ? 256 - frequency : frequency) * (state / 256) + slot - (escaped ? frequency : 0);
          if (x < 256) x = 256 * x + *in++;
          ASSERT_EQ(at.high[group][lane] * 256U + at.low[group][lane], x) << state << ", " << frequency;
          const unsigned other = escapes_are_coded && escaped ? *escapes++ : 44;
          ASSERT_EQ(elements[2 * (group * 64 + lane) + 1], escaped ? other : 33) << state << ", " << frequency;
        }
        ASSERT_EQ(at.in[group], in);
      }
      ASSERT_EQ(at.escapes, escapes);
    }
  }
}

TEST_P(RansKernel, DecodesEveryStateOfASymbolAndTheEscape) { expect_decoding(GetParam(), true); }
TEST_P(RansKernel, DecodesEveryStateOfTwoSymbols) { expect_decoding(GetParam(), false); }

INSTANTIATE_TEST_SUITE_P(All, RansKernel, testing::ValuesIn(kCpuLevels),
                         [](const auto& level) { return std::string(cpu_level_name(level.param)); });

}  // namespace
}  // namespace bitsnap::entropy
