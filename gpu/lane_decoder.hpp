// Decodes the elements of one chunk from lanes (docs/spec/rans.md, "Decoding"), with one warp for each of the four
// groups. All warps run decode(), then meet, and then the first one runs put_escapes().
//
// The payload is not trusted: no read leaves a stream or the escapes, whatever they contain.
#pragma once

#include <cstdint>

#include "gpu/lane_bits.hpp"
#include "gpu/lane_jobs.hpp"

namespace bitsnap::gpu {

template <typename Warp, unsigned kBytes, bool kRotated>
class LaneDecoder {
 public:
  // `entries` has 256 numbers of this warp, which all its lanes reach.
  BITSNAP_DEVICE LaneDecoder(const Warp& warp, const DecodeJob& job, unsigned group, std::uint32_t* entries)
      : warp_(warp),
        job_(job),
        group_(group),
        entries_(entries),
        in_(job.streams[group]),
        end_(job.streams[group] + job.stream_sizes[group]) {}

  // Decodes the elements of the group, but leaves the symbols of escaped ones 0. Whether the stream and the states
  // ended as they must.
  [[nodiscard]] BITSNAP_DEVICE bool decode() {
    const std::uint8_t* const states = job_.states + group_ * 2 * kLanes;
    warp_.each([&](unsigned lane, unsigned slot) {
      states_[slot] = states[lane] | std::uint32_t{states[kLanes + lane]} << 8;
    });
    const std::uint64_t rounds = rounds_of(job_.count);
    for (std::uint64_t round = 0; round < rounds; ++round) {
      if (round * kRoundElements % kBlockElements == 0) begin_block(round * kRoundElements / kBlockElements);
      if (is_single_) {
        put_single(round);
      } else {
        decode_round(round);
      }
    }
    const std::uint64_t wrong = warp_.vote([&](unsigned, unsigned slot) { return states_[slot] != kFirstState; });
    return in_ == end_ && wrong == 0 && !is_short_;
  }

  // Gives the escaped elements of all groups their symbols. Whether there were as many escapes as the payload has.
  [[nodiscard]] BITSNAP_DEVICE bool put_escapes() const {
    const std::uint64_t masks = rounds_of(job_.count) * kGroups;
    std::uint64_t used = 0;
    for (std::uint64_t first = 0; first < masks; first += kLanes) {
      typename Warp::template PerLane<std::uint64_t> places;
      const auto mask_of = [&](unsigned lane) -> std::uint64_t {
        const std::uint64_t number = first + lane;
        if (number >= masks || job_.blocks[number * kLanes / kBlockElements].single) return 0;
        return job_.masks[number];
      };
      warp_.each([&](unsigned lane, unsigned slot) { places[slot] = count_bits(mask_of(lane)); });
      const std::uint64_t sum = warp_.sum_before(places);
      warp_.each([&](unsigned lane, unsigned slot) {
        std::uint64_t place = used + places[slot];
        for (std::uint64_t mask = mask_of(lane); mask != 0 && place < job_.escapes_size; mask &= mask - 1, ++place) {
          const std::uint64_t index = (first + lane) * kLanes + lowest_bit(mask);
          if (index < job_.count) put_symbol(index, job_.escapes[place]);
        }
      });
      used += sum;
    }
    return used == job_.escapes_size;
  }

 private:
  // The frequency in bits 0 to 7, the distance of the slot from its symbol's start in bits 8 to 15, the symbol in bits
  // 16 to 23, and whether it is escaped in bit 24.
  BITSNAP_DEVICE void begin_block(std::uint64_t block) {
    const entropy::RansDecodeTable& table = job_.blocks[block];
    is_single_ = table.single;
    symbol_ = table.symbols[0];
    if (is_single_) return;
    warp_.sync();
    warp_.each([&](unsigned lane, unsigned) {
      for (unsigned slot = lane; slot < 256; slot += kLanes) {
        unsigned index = 0;
        for (unsigned i = 1; i < 16; ++i) index += table.starts[i] <= slot ? 1 : 0;
        const std::uint32_t escaped = index >= table.escape_index ? 1 : 0;
        entries_[slot] = std::uint32_t{table.frequencies[index]} | (slot - table.starts[index]) << 8 |
                         (escaped != 0 ? 0 : std::uint32_t{table.symbols[index]} << 16) | escaped << 24;
      }
    });
    warp_.sync();
  }

  BITSNAP_DEVICE void put_element(std::uint64_t index, std::uint32_t symbol) const {
    std::uint32_t element = symbol << (8 * (kBytes - 1));
    const std::uint8_t* const rest = job_.rest + index * (kBytes - 1);
    for (unsigned k = 0; k < kBytes - 1; ++k) element |= std::uint32_t{rest[k]} << (8 * k);
    if constexpr (kRotated) element = rotate_right<kBytes>(element);
    store_element<kBytes>(job_.elements + index * kBytes, element);
  }

  BITSNAP_DEVICE void put_symbol(std::uint64_t index, std::uint32_t symbol) const {
    std::uint32_t bits = symbol << (8 * (kBytes - 1));
    if constexpr (kRotated) bits = rotate_right<kBytes>(bits);
    std::uint8_t* const at = job_.elements + index * kBytes;
    store_element<kBytes>(at, load_element<kBytes>(at) | bits);
  }

  [[nodiscard]] BITSNAP_DEVICE std::uint64_t first_of(std::uint64_t round) const {
    return round * kRoundElements + group_ * kLanes;
  }

  BITSNAP_DEVICE void put_single(std::uint64_t round) const {
    warp_.each([&](unsigned lane, unsigned) {
      const std::uint64_t index = first_of(round) + lane;
      if (index < job_.count) put_element(index, symbol_);
    });
  }

  BITSNAP_DEVICE void decode_round(std::uint64_t round) {
    typename Warp::template PerLane<std::uint32_t> entries;
    warp_.each([&](unsigned, unsigned slot) {
      const std::uint32_t state = states_[slot];
      const std::uint32_t entry = entries_[state & 255];
      entries[slot] = entry;
      states_[slot] = (entry & 0xff) * (state >> 8) + (entry >> 8 & 0xff);
    });
    const std::uint64_t takes = warp_.vote([&](unsigned, unsigned slot) { return states_[slot] < 256; });
    const std::uint64_t escaped = warp_.vote([&](unsigned, unsigned slot) { return (entries[slot] >> 24) != 0; });
    const auto left = static_cast<std::uint64_t>(end_ - in_);
    warp_.each([&](unsigned lane, unsigned slot) {
      if ((takes >> lane & 1) != 0) {
        const unsigned place = rank_of(lane, takes);
        states_[slot] = states_[slot] << 8 | (place < left ? in_[place] : 0U);
      }
      const std::uint64_t index = first_of(round) + lane;
      if (index < job_.count) put_element(index, entries[slot] >> 16 & 0xff);
      if (lane == 0) job_.masks[round * kGroups + group_] = escaped;
    });
    const unsigned taken = count_bits(takes);
    is_short_ = is_short_ || taken > left;
    in_ += taken < left ? taken : left;
  }

  const Warp warp_;
  const DecodeJob job_;
  const unsigned group_;
  std::uint32_t* const entries_;
  const std::uint8_t* in_;
  const std::uint8_t* const end_;
  typename Warp::template PerLane<std::uint32_t> states_;
  bool is_single_ = false;
  bool is_short_ = false;
  std::uint32_t symbol_ = 0;
};

}  // namespace bitsnap::gpu
