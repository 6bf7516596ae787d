// Reads elements whose topmost byte is coded in lanes: docs/spec/rans.md. The final cursors are checked after the
// kernel has run.
#include "entropy/split_elements.hpp"

#include <algorithm>
#include <bit>
#include <string>

#include "base/checked.hpp"
#include "base/cpu_dispatch.hpp"
#include "entropy/rans.hpp"
#include "entropy/rans_decode_kernel.hpp"
#include "entropy/split_payload.hpp"

namespace bitsnap::entropy {
namespace {

static_assert(kDecodeLanes == kRansLanes && kDecodeGroups == kRansGroups);

// The cursors and the states before the first element.
RansDecoding begin_of(const SplitPayload& fields) noexcept {
  RansDecoding at;
  const std::uint8_t* const states = as_u8(fields.states);
  for (std::size_t group = 0; group < kRansGroups; ++group) {
    at.in[group] = as_u8(fields.streams[group]);
    std::copy_n(states + group * 2 * kRansLanes, kRansLanes, at.low[group]);
    std::copy_n(states + (group * 2 + 1) * kRansLanes, kRansLanes, at.high[group]);
  }
  at.escapes = as_u8(fields.escapes);
  at.limit = states + kRansStateBytes - kReadableBehind;
  return at;
}

// Compares where the kernels stopped with where the encoder began.
Result<void> check_end(const RansDecoding& at, const SplitPayload& fields) {
  for (std::size_t group = 0; group < kRansGroups; ++group) {
    const ConstByteSpan stream = fields.streams[group];
    if (at.in[group] != as_u8(stream) + stream.size()) {
      return fail(ErrorKind::corrupt, "stream " + std::to_string(group) + " of " + std::to_string(stream.size()) +
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
  if (at.escapes != as_u8(fields.escapes) + fields.escapes.size()) {
    return fail(ErrorKind::corrupt,
                std::to_string(fields.escapes.size()) + " escapes do not end with the last element");
  }
  return {};
}

}  // namespace

Result<void> decode_split(ConstByteSpan payload, const SplitShape& shape, ByteSpan out, Scratch& scratch) {
  const Scratch::Frame frame(scratch);
  const std::size_t blocks = divide_up(shape.elements, kRansBlockElements);
  BITSNAP_ASSIGN(const std::span<RansDecodeTable> tables, scratch.take_array<RansDecodeTable>(blocks));
  BITSNAP_ASSIGN(const SplitPayload fields, read_split_payload(payload, shape, tables));
  RansDecoding at = begin_of(fields);

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
  return check_end(at, fields);
}

}  // namespace bitsnap::entropy
