#include "entropy/split_payload.hpp"

#include <string>

namespace bitsnap::entropy {
namespace {

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

Result<void> check_states(ConstByteSpan states) {
  for (std::size_t group = 0; group < kRansGroups; ++group) {
    const std::uint8_t* const low = as_u8(states) + group * 2 * kRansLanes;
    const std::uint8_t* const high = low + kRansLanes;
    for (std::size_t lane = 0; lane < kRansLanes; ++lane) {
      if (high[lane] == 0) {
        return fail(ErrorKind::corrupt, "state of lane " + std::to_string(lane) + " of group " + std::to_string(group) +
                                            " is " + std::to_string(low[lane]) + ", expected at least " +
                                            std::to_string(kRansFirstState));
      }
    }
  }
  return {};
}

}  // namespace

Result<SplitPayload> read_split_payload(ConstByteSpan payload, const SplitShape& shape,
                                        std::span<RansDecodeTable> tables) {
  ByteCursor cursor(payload);
  std::array<std::size_t, kRansGroups> sizes{};
  for (std::size_t& size : sizes) {
    BITSNAP_ASSIGN(size, cursor.read<std::uint32_t>("size of a stream"));
  }
  BITSNAP_ASSIGN(const std::size_t escapes, cursor.read<std::uint32_t>("number of escapes"));
  SplitPayload fields{};
  BITSNAP_ASSIGN(fields.rest, cursor.take(shape.rest_bytes(), "lower bytes of the elements"));
  for (std::size_t block = 0; block < tables.size(); ++block) {
    RansTable table;
    auto used = read_rans_table(payload.subspan(cursor.offset()), table);
    if (!used) return tl::unexpected(std::move(used).error().within("table of block " + std::to_string(block)));
    tables[block] = kernel_table(table);
    BITSNAP_TRY(cursor.take(*used, "table"));
  }
  for (std::size_t group = 0; group < kRansGroups; ++group) {
    BITSNAP_ASSIGN(fields.streams[group], cursor.take(sizes[group], "stream"));
  }
  BITSNAP_ASSIGN(fields.escapes, cursor.take(escapes, "escapes"));
  BITSNAP_ASSIGN(fields.states, cursor.take(kRansStateBytes, "states"));
  if (cursor.remaining() != 0) {
    return fail(ErrorKind::corrupt, std::to_string(cursor.remaining()) + " bytes after the states");
  }
  BITSNAP_TRY(check_states(fields.states));
  return fields;
}

}  // namespace bitsnap::entropy
