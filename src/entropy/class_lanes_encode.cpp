// Writes values by class: docs/spec/rans.md, "Values by class". Streams, low bits and low bytes are written downwards
// into separate buffers and joined at the end.
#include "entropy/class_lanes_encode.hpp"

#include <algorithm>
#include <cstring>

#include "base/checked.hpp"
#include "base/cpu_dispatch.hpp"
#include "entropy/octave_symbols.hpp"

namespace bitsnap::entropy {
namespace {

ClassEncodeTable kernel_table(const ClassTables& from) noexcept {
  auto table = table_of_plans<ClassEncodeTable>(from);
  for (std::size_t i = 0; i < from.classes; ++i) {
    unsigned start = 0;
    for (std::size_t symbol = 0; symbol < kClassSymbols; ++symbol) {
      const std::size_t index = i * kClassSymbols + symbol;
      const unsigned frequency = from.frequencies[i][symbol];
      table.indexes[index] = static_cast<std::uint8_t>(frequency != 0 ? index : i * kClassSymbols + kClassEscape);
      table.starts[index] = static_cast<std::uint8_t>(start);
      start += frequency;
      const unsigned divisor = std::max(frequency, 1U);
      table.frequencies[index] = static_cast<std::uint8_t>(divisor);
      table.reciprocals_low[index] = static_cast<std::uint8_t>(rans_reciprocal(divisor));
      table.reciprocals_high[index] = static_cast<std::uint8_t>(rans_reciprocal(divisor) >> 8);
    }
  }
  return table;
}

}  // namespace

Result<void> ClassLanesEncoder::open(const ClassTables& tables, std::size_t rounds, Scratch& scratch) {
  tables_ = tables;
  table_ = kernel_table(tables);
  const std::size_t values = rounds * kRansRoundElements;
  const std::size_t stream = kWritableBelow + rounds * kRansLanes;
  const std::size_t bits = kWritableBelow + values;
  const std::size_t bytes = kWritableBelow + values;
  const std::size_t escapes = kWritableBelow + 2 * values;
  BITSNAP_ASSIGN(const std::span<std::uint8_t> room,
                 scratch.take_array<std::uint8_t>(kRansGroups * stream + bits + bytes + escapes));
  for (std::size_t group = 0; group < kRansGroups; ++group) {
    stream_ends_[group] = at_.out[group] = room.data() + (group + 1) * stream;
    std::fill_n(at_.low[group], kRansLanes, static_cast<std::uint8_t>(kRansFirstState % 256));
    std::fill_n(at_.high[group], kRansLanes, static_cast<std::uint8_t>(kRansFirstState / 256));
  }
  bits_end_ = at_.bits = room.data() + kRansGroups * stream + bits;
  bytes_end_ = at_.bytes = bits_end_ + bytes;
  escapes_end_ = at_.escapes = bytes_end_ + escapes;
  at_.pending = 0;
  at_.pending_bits = 0;
  return {};
}

void ClassLanesEncoder::encode(const std::uint8_t* contexts, const std::uint16_t* values, std::size_t rounds,
                               const ReadAhead& ahead) noexcept {
  kernels<ClassEncodeKernels>().encode(at_, table_, contexts, values, rounds, ahead);
}

std::size_t ClassLanesEncoder::finish() noexcept {
  bit_count_ = static_cast<std::size_t>(bits_end_ - at_.bits) * 8 + at_.pending_bits;
  if (at_.pending_bits > 0) {
    *--at_.bits = static_cast<std::uint8_t>(at_.pending << (8 - at_.pending_bits));
    at_.pending_bits = 0;
  }
  std::size_t size = class_tables_size(tables_.classes) + (kRansGroups + 3) * sizeof(std::uint32_t) + kRansStateBytes;
  size += static_cast<std::size_t>(bits_end_ - at_.bits) + static_cast<std::size_t>(bytes_end_ - at_.bytes);
  size += static_cast<std::size_t>(escapes_end_ - at_.escapes);
  for (std::size_t group = 0; group < kRansGroups; ++group) {
    size += static_cast<std::size_t>(stream_ends_[group] - at_.out[group]);
  }
  return size;
}

void ClassLanesEncoder::write(std::byte* out) const noexcept {
  const auto put = [&](const std::uint8_t* bytes, std::size_t size) {
    std::memcpy(out, bytes, size);
    out += size;
  };
  const auto put_between = [&](const std::uint8_t* begin, const std::uint8_t* end) {
    put(begin, static_cast<std::size_t>(end - begin));
  };
  const auto put_size = [&](std::size_t size) {
    store_le(out, static_cast<std::uint32_t>(size));
    out += sizeof(std::uint32_t);
  };
  *out++ = static_cast<std::byte>(tables_.classes);
  put(tables_.plans.data(), kClassContexts);
  for (std::size_t i = 0; i < tables_.classes; ++i) put(tables_.frequencies[i].data(), kClassSymbols);
  for (std::size_t group = 0; group < kRansGroups; ++group) {
    put_size(static_cast<std::size_t>(stream_ends_[group] - at_.out[group]));
  }
  put_size(bit_count_);
  put_size(static_cast<std::size_t>(bytes_end_ - at_.bytes));
  put_size(static_cast<std::size_t>(escapes_end_ - at_.escapes) / 2);
  put_between(at_.bits, bits_end_);
  put_between(at_.bytes, bytes_end_);
  for (std::size_t group = 0; group < kRansGroups; ++group) put_between(at_.out[group], stream_ends_[group]);
  put_between(at_.escapes, escapes_end_);
  for (std::size_t group = 0; group < kRansGroups; ++group) {
    put(at_.low[group], kRansLanes);
    put(at_.high[group], kRansLanes);
  }
}

std::uint16_t ClassLanesEncoder::cheapest_value(std::uint8_t context) const noexcept {
  const std::uint8_t plan = tables_.plans[context];
  const auto& frequencies = tables_.frequencies[(plan & kPlanClass) / kPlanClassUnit];
  const auto most = std::max_element(frequencies.begin(), frequencies.begin() + kClassEscape) - frequencies.begin();
  const std::size_t index = (plan & kPlanCoarseness) / 4U + static_cast<std::size_t>(most);
  return static_cast<std::uint16_t>(kOctaveSymbols.heads[index]
                                    << ((plan & kPlanShift) + kOctaveSymbols.low_bits[index]));
}

}  // namespace bitsnap::entropy
