// Reads values by class: docs/spec/rans.md, "Values by class". All fields are checked before a kernel runs, and the
// final cursors after it.
#include "entropy/class_lanes.hpp"

#include <algorithm>
#include <string>

#include "base/checked.hpp"
#include "base/cpu_dispatch.hpp"

namespace bitsnap::entropy {
namespace {

void fill_class(const std::array<std::uint8_t, kClassSymbols>& frequencies, std::size_t first,
                ClassDecodeTable& table) noexcept {
  unsigned start = 0;
  for (std::size_t symbol = 0; symbol < kClassSymbols; ++symbol) {
    const std::size_t index = first + symbol;
    if (frequencies[symbol] == 0 && symbol > 0) {
      table.starts[index] = table.starts[index - 1];
      table.frequencies[index] = table.frequencies[index - 1];
      table.symbols[index] = table.symbols[index - 1];
      continue;
    }
    table.starts[index] = static_cast<std::uint8_t>(start);
    table.frequencies[index] = frequencies[symbol];
    table.symbols[index] = static_cast<std::uint8_t>(symbol);
    start += frequencies[symbol];
  }
}

ClassDecodeTable kernel_table(const ClassTables& from) noexcept {
  auto table = table_of_plans<ClassDecodeTable>(from);
  for (std::size_t i = 0; i < from.classes; ++i) fill_class(from.frequencies[i], i * kClassSymbols, table);
  for (std::size_t i = 0; i < 4; ++i) {
    const std::size_t ahead = std::size_t{8} >> i;
    std::copy(table.starts + ahead, table.starts + 64, table.starts_ahead[i]);
  }
  return table;
}

}  // namespace

Result<void> read_class_tables(ConstByteSpan bytes, ClassTables& tables) {
  ByteCursor cursor(bytes);
  BITSNAP_ASSIGN(const std::uint8_t classes, cursor.read<std::uint8_t>("number of classes"));
  if (classes == 0 || classes > kMaxClasses) {
    return fail(ErrorKind::corrupt,
                "tables have " + std::to_string(classes) + " classes, expected 1 to " + std::to_string(kMaxClasses));
  }
  tables.classes = classes;
  BITSNAP_ASSIGN(const ConstByteSpan plans, cursor.take(kClassContexts, "plans"));
  for (std::size_t context = 0; context < kClassContexts; ++context) {
    const auto plan = std::to_integer<std::uint8_t>(plans[context]);
    if (const unsigned own = (plan & kPlanClass) / kPlanClassUnit; own >= classes) {
      return fail(ErrorKind::corrupt, "plan of context " + std::to_string(context) + " has class " +
                                          std::to_string(own) + ", expected a class below " + std::to_string(classes));
    }
    tables.plans[context] = plan;
  }
  for (std::size_t i = 0; i < classes; ++i) {
    BITSNAP_ASSIGN(const ConstByteSpan frequencies, cursor.take(kClassSymbols, "frequencies of a class"));
    unsigned sum = 0;
    for (std::size_t symbol = 0; symbol < kClassSymbols; ++symbol) {
      tables.frequencies[i][symbol] = std::to_integer<std::uint8_t>(frequencies[symbol]);
      sum += tables.frequencies[i][symbol];
    }
    if (sum != kRansScale) {
      return fail(ErrorKind::corrupt, "frequencies of class " + std::to_string(i) + " sum to " + std::to_string(sum) +
                                          ", expected " + std::to_string(kRansScale));
    }
  }
  return {};
}

Result<void> ClassLanesDecoder::open(ConstByteSpan payload) {
  ClassTables tables;
  BITSNAP_TRY(read_class_tables(payload, tables));
  table_ = kernel_table(tables);
  ByteCursor cursor(payload.subspan(class_tables_size(tables.classes)));
  std::array<std::size_t, kRansGroups> sizes{};
  for (std::size_t& size : sizes) {
    BITSNAP_ASSIGN(size, cursor.read<std::uint32_t>("size of a stream"));
  }
  BITSNAP_ASSIGN(const std::size_t bit_count, cursor.read<std::uint32_t>("number of low bits"));
  BITSNAP_ASSIGN(const std::size_t byte_count, cursor.read<std::uint32_t>("number of low bytes"));
  BITSNAP_ASSIGN(const std::size_t escape_count, cursor.read<std::uint32_t>("number of escapes"));
  BITSNAP_ASSIGN(const ConstByteSpan bits, cursor.take(divide_up(bit_count, std::size_t{8}), "low bits"));
  at_.bits = as_u8(bits);
  bits_end_ = bits.size() * 8;
  at_.bit = bits_end_ - bit_count;
  if (at_.bit != 0 && (std::to_integer<unsigned>(bits[0]) & ((1U << at_.bit) - 1)) != 0) {
    return fail(ErrorKind::corrupt, "padding before the low bits is not zero");
  }
  BITSNAP_ASSIGN(const ConstByteSpan bytes, cursor.take(byte_count, "low bytes"));
  at_.bytes = as_u8(bytes);
  bytes_end_ = at_.bytes + bytes.size();
  for (std::size_t group = 0; group < kRansGroups; ++group) {
    BITSNAP_ASSIGN(const ConstByteSpan stream, cursor.take(sizes[group], "stream"));
    at_.in[group] = as_u8(stream);
    stream_ends_[group] = at_.in[group] + stream.size();
  }
  BITSNAP_ASSIGN(const ConstByteSpan escapes, cursor.take(std::uint64_t{escape_count} * 2, "escapes"));
  at_.escapes = as_u8(escapes);
  escapes_end_ = at_.escapes + escapes.size();
  BITSNAP_ASSIGN(const ConstByteSpan states, cursor.take(kRansStateBytes, "states"));
  if (cursor.remaining() != 0) {
    return fail(ErrorKind::corrupt, std::to_string(cursor.remaining()) + " bytes after the states");
  }
  at_.limit = as_u8(states) + states.size() - kReadableBehind;
  for (std::size_t group = 0; group < kRansGroups; ++group) {
    const std::uint8_t* const own = as_u8(states) + group * 2 * kRansLanes;
    std::copy_n(own, kRansLanes, at_.low[group]);
    std::copy_n(own + kRansLanes, kRansLanes, at_.high[group]);
    if (const auto* const zero = std::find(at_.high[group], at_.high[group] + kRansLanes, 0);
        zero != at_.high[group] + kRansLanes) {
      return fail(ErrorKind::corrupt, "state of lane " + std::to_string(zero - at_.high[group]) + " of group " +
                                          std::to_string(group) + " is below " + std::to_string(kRansFirstState));
    }
  }
  return {};
}

void ClassLanesDecoder::decode(const std::uint8_t* contexts, std::size_t rounds, std::uint16_t* values,
                               const ReadAhead& ahead) noexcept {
  kernels<ClassDecodeKernels>().decode(at_, table_, contexts, rounds, values, ahead);
}

Result<void> ClassLanesDecoder::check_end() const {
  for (std::size_t group = 0; group < kRansGroups; ++group) {
    if (at_.in[group] != stream_ends_[group]) {
      return fail(ErrorKind::corrupt, "stream " + std::to_string(group) + " does not end with its last value");
    }
    for (std::size_t lane = 0; lane < kRansLanes; ++lane) {
      const unsigned state = at_.high[group][lane] * 256U + at_.low[group][lane];
      if (state != kRansFirstState) {
        return fail(ErrorKind::corrupt, "state of lane " + std::to_string(lane) + " of group " + std::to_string(group) +
                                            " ends as " + std::to_string(state) + ", expected " +
                                            std::to_string(kRansFirstState));
      }
    }
  }
  if (at_.bit != bits_end_) return fail(ErrorKind::corrupt, "low bits do not end with the last value");
  if (at_.escapes != escapes_end_) return fail(ErrorKind::corrupt, "escapes do not end with the last value");
  if (at_.bytes != bytes_end_) return fail(ErrorKind::corrupt, "low bytes do not end with the last value");
  return {};
}

}  // namespace bitsnap::entropy
