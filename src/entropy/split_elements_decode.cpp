// Reads elements whose topmost byte is coded in lanes: docs/spec/rans.md. All fields are checked before a kernel runs,
// and the final cursors after it.
#include "entropy/split_elements.hpp"

#include <algorithm>
#include <bit>
#include <string>

#include "base/checked.hpp"
#include "base/cpu_dispatch.hpp"
#include "entropy/rans.hpp"
#include "entropy/rans_decode_kernel.hpp"

namespace bitsnap::entropy {
namespace {

static_assert(kDecodeLanes == kRansLanes && kDecodeGroups == kRansGroups);

RansDecodeTable kernel_table(const RansTable& from) noexcept {
  RansDecodeTable table{};
  table.single = from.is_single();
  table.escape_index = static_cast<std::uint8_t>(from.escape == 0 ? 16 : from.count);
  unsigned start = 0;
  for (std::size_t index = 0; index < 16; ++index) {
    const bool repeats = index > from.count || (index == from.count && from.escape == 0);
    if (repeats) {
      table.symbols[index] = table.symbols[index - 1];
      table.starts[index] = table.starts[index - 1];
      table.frequencies[index] = table.frequencies[index - 1];
      continue;
    }
    const unsigned frequency = index == from.count ? from.escape : from.frequencies[index];
    table.symbols[index] = index == from.count ? std::uint8_t{0} : from.symbols[index];
    table.starts[index] = static_cast<std::uint8_t>(start);
    table.frequencies[index] = static_cast<std::uint8_t>(frequency);
    start += frequency;
  }
  return table;
}

// The fields of a payload; each lies within it.
struct Fields {
  std::array<std::size_t, kRansGroups> stream_sizes;
  std::size_t escapes_size;
  ConstByteSpan rest;
  ConstByteSpan tables;  // and everything after them
};

Result<Fields> read_fields(ConstByteSpan payload, const SplitShape& shape) {
  ByteCursor cursor(payload);
  Fields fields{};
  for (std::size_t& size : fields.stream_sizes) {
    BITSNAP_ASSIGN(size, cursor.read<std::uint32_t>("size of a stream"));
  }
  BITSNAP_ASSIGN(fields.escapes_size, cursor.read<std::uint32_t>("number of escapes"));
  BITSNAP_ASSIGN(fields.rest, cursor.take(shape.rest_bytes(), "lower bytes of the elements"));
  fields.tables = payload.subspan(cursor.offset());
  return fields;
}

// Sets the cursors and the states of `at` from the bytes after the tables.
Result<void> read_streams(ConstByteSpan bytes, const Fields& fields, RansDecoding& at) {
  ByteCursor cursor(bytes);
  for (std::size_t group = 0; group < kRansGroups; ++group) {
    BITSNAP_ASSIGN(const ConstByteSpan stream, cursor.take(fields.stream_sizes[group], "stream"));
    at.in[group] = as_u8(stream);
  }
  BITSNAP_ASSIGN(const ConstByteSpan escapes, cursor.take(fields.escapes_size, "escapes"));
  at.escapes = as_u8(escapes);
  BITSNAP_ASSIGN(const ConstByteSpan states, cursor.take(kRansStateBytes, "states"));
  if (cursor.remaining() != 0) {
    return fail(ErrorKind::corrupt, std::to_string(cursor.remaining()) + " bytes after the states");
  }
  at.limit = as_u8(states) + states.size() - kReadableBehind;
  for (std::size_t group = 0; group < kRansGroups; ++group) {
    const std::uint8_t* const own = as_u8(states) + group * 2 * kRansLanes;
    std::copy_n(own, kRansLanes, at.low[group]);
    std::copy_n(own + kRansLanes, kRansLanes, at.high[group]);
    for (std::size_t lane = 0; lane < kRansLanes; ++lane) {
      if (at.high[group][lane] == 0) {
        return fail(ErrorKind::corrupt, "state of lane " + std::to_string(lane) + " of group " + std::to_string(group) +
                                            " is " + std::to_string(at.low[group][lane]) + ", expected at least " +
                                            std::to_string(kRansFirstState));
      }
    }
  }
  return {};
}

// Compares where the kernels stopped with where the encoder began.
Result<void> check_end(const RansDecoding& at, const RansDecoding& begin, const Fields& fields) {
  for (std::size_t group = 0; group < kRansGroups; ++group) {
    const auto used = static_cast<std::size_t>(at.in[group] - begin.in[group]);
    if (used != fields.stream_sizes[group]) {
      return fail(ErrorKind::corrupt, "stream " + std::to_string(group) + " of " +
                                          std::to_string(fields.stream_sizes[group]) +
                                          " bytes does not end with its last element");
    }
    for (std::size_t lane = 0; lane < kRansLanes; ++lane) {
      const unsigned state = at.high[group][lane] * 256U + at.low[group][lane];
      if (state != kRansFirstState) {
        return fail(ErrorKind::corrupt, "state of lane " + std::to_string(lane) + " of group " + std::to_string(group) +
                                            " ends as " + std::to_string(state) + ", expected " +
                                            std::to_string(kRansFirstState));
      }
    }
  }
  if (static_cast<std::size_t>(at.escapes - begin.escapes) != fields.escapes_size) {
    return fail(ErrorKind::corrupt, std::to_string(fields.escapes_size) + " escapes do not end with the last element");
  }
  return {};
}

}  // namespace

Result<void> decode_split(ConstByteSpan payload, const SplitShape& shape, ByteSpan out, Scratch& scratch) {
  const Scratch::Frame frame(scratch);
  BITSNAP_ASSIGN(Fields fields, read_fields(payload, shape));
  const std::size_t blocks = divide_up(shape.elements, kRansBlockElements);
  BITSNAP_ASSIGN(const std::span<RansDecodeTable> tables, scratch.take_array<RansDecodeTable>(blocks));
  std::size_t tables_size = 0;
  for (std::size_t block = 0; block < blocks; ++block) {
    RansTable table;
    auto used = read_rans_table(fields.tables.subspan(tables_size), table);
    if (!used) return tl::unexpected(std::move(used).error().within("table of block " + std::to_string(block)));
    tables[block] = kernel_table(table);
    tables_size += *used;
  }
  RansDecoding at;
  BITSNAP_TRY(read_streams(fields.tables.subspan(tables_size), fields, at));
  const RansDecoding begin = at;

  const auto kernel = kernels<RansDecodeKernels>().decode[std::countr_zero(shape.element_bytes)][shape.rotated ? 1 : 0];
  const std::size_t rest_bytes = shape.element_bytes - 1;
  const std::uint8_t* const rest = as_u8(fields.rest);
  auto* const elements = reinterpret_cast<std::uint8_t*>(out.data());
  for (std::size_t block = 0; block < blocks; ++block) {
    const std::size_t first = block * kRansBlockElements;
    const std::size_t count = std::min(kRansBlockElements, shape.elements - first);
    const std::size_t rounds = count / kRansRoundElements;
    kernel(at, tables[block], rest + first * rest_bytes, rounds, elements + first * shape.element_bytes);
    const std::size_t done = first + rounds * kRansRoundElements;
    const std::size_t left = first + count - done;
    if (left == 0) continue;
    // The last round has unused lanes, so it is decoded into a buffer.
    BITSNAP_ASSIGN(const std::span<std::uint8_t> side_rest,
                   scratch.take_array<std::uint8_t>(kRansRoundElements * rest_bytes + kReadableBehind));
    BITSNAP_ASSIGN(const std::span<std::uint8_t> side_elements,
                   scratch.take_array<std::uint8_t>(kRansRoundElements * shape.element_bytes));
    std::fill(side_rest.begin(), side_rest.end(), std::uint8_t{0});
    std::copy_n(rest + done * rest_bytes, left * rest_bytes, side_rest.begin());
    kernel(at, tables[block], side_rest.data(), 1, side_elements.data());
    std::copy_n(side_elements.begin(), left * shape.element_bytes, elements + done * shape.element_bytes);
  }
  return check_end(at, begin, fields);
}

}  // namespace bitsnap::entropy
