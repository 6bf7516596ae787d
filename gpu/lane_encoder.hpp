// Codes the elements of one chunk in lanes (docs/spec/rans.md, "Writing"), with one warp for each of the four groups.
//
// The bytes are those of the kernels for CPUs. All warps run encode(), then meet, and then all run assemble().
#pragma once

#include <cstdint>

#include "gpu/lane_bits.hpp"
#include "gpu/lane_jobs.hpp"

namespace bitsnap::gpu {

// What a warp leaves to the others. Without initializers, which shared memory of a GPU cannot have.
struct EncodedGroup {
  std::uint64_t stream_bytes;
  std::uint64_t escapes;
};

template <typename Warp, unsigned kBytes, bool kRotated>
class LaneEncoder {
 public:
  // `entries` has 256 numbers of this warp, which all its lanes reach.
  BITSNAP_DEVICE LaneEncoder(const Warp& warp, const EncodeJob& job, unsigned group, std::uint32_t* entries)
      : warp_(warp),
        job_(job),
        group_(group),
        entries_(entries),
        masks_(reinterpret_cast<std::uint64_t*>(job.scratch)),
        out_(stream_end()) {}

  // Codes the elements of the group from the last to the first, and writes the lower bytes of each.
  [[nodiscard]] BITSNAP_DEVICE EncodedGroup encode() {
    warp_.each([&](unsigned, unsigned slot) { states_[slot] = kFirstState; });
    for (std::uint64_t round = rounds_of(job_.count); round-- > 0;) {
      const std::uint64_t block = round * kRoundElements / kBlockElements;
      if (block != block_) begin_block(block);
      if (is_single_) {
        take_apart(round);
      } else {
        encode_round(round);
      }
    }
    return {static_cast<std::uint64_t>(stream_end() - out_), escapes_};
  }

  // Writes everything else that the payload has, each warp its part.
  BITSNAP_DEVICE void assemble(const EncodedGroup* groups) const {
    std::uint64_t streams = 0;
    std::uint64_t before = 0;
    std::uint64_t escapes = 0;
    for (unsigned group = 0; group < kGroups; ++group) {
      if (group < group_) before += groups[group].stream_bytes;
      streams += groups[group].stream_bytes;
      escapes += groups[group].escapes;
    }
    const std::uint64_t fixed = 1 + kSizesBytes + job_.count * (kBytes - 1) + job_.table_size;
    const std::uint64_t size = fixed + streams + escapes + kStateBytes;
    const bool is_smaller = size < job_.count * kBytes;
    if (group_ == 0) {
      warp_.each([&](unsigned lane, unsigned) {
        if (lane == 0) *job_.payload_size = is_smaller ? size : 0;
      });
    }
    if (!is_smaller) return;
    if (group_ == 0) {
      write_sizes(groups, escapes);
      copy_bytes(warp_, job_.table_bytes, job_.table_size, job_.payload + fixed - job_.table_size);
    }
    copy_bytes(warp_, out_, groups[group_].stream_bytes, job_.payload + fixed + before);
    if (group_ == kGroups - 1) write_escapes(job_.payload + fixed + streams);
    std::uint8_t* const states = job_.payload + size - kStateBytes + group_ * 2 * kLanes;
    warp_.each([&](unsigned lane, unsigned slot) {
      states[lane] = static_cast<std::uint8_t>(states_[slot]);
      states[kLanes + lane] = static_cast<std::uint8_t>(states_[slot] >> 8);
    });
  }

 private:
  [[nodiscard]] BITSNAP_DEVICE std::uint8_t* stream_end() const {
    return job_.scratch + mask_bytes(job_.count) + (group_ + 1) * rounds_of(job_.count) * kLanes;
  }

  // As the kernels for CPUs have them: the frequency in bits 0 to 7, the start in bits 8 to 15, the reciprocal above.
  [[nodiscard]] BITSNAP_DEVICE static std::uint32_t entry_of(const entropy::RansEncodeTable& table, unsigned index) {
    return std::uint32_t{table.frequencies[index]} | std::uint32_t{table.starts[index]} << 8 |
           std::uint32_t{table.reciprocals_low[index]} << 16 | std::uint32_t{table.reciprocals_high[index]} << 24;
  }

  BITSNAP_DEVICE void begin_block(std::uint64_t block) {
    block_ = block;
    const entropy::RansEncodeTable& table = job_.blocks[block].table;
    is_single_ = table.single;
    if (is_single_) return;
    escape_ = entry_of(table, table.window) & 0xffff;
    warp_.sync();
    warp_.each([&](unsigned lane, unsigned) {
      for (unsigned symbol = lane; symbol < 256; symbol += kLanes) {
        const unsigned distance = (symbol - table.first) & 255;
        const unsigned in_window = distance < table.window ? distance : table.window;
        entries_[symbol] = entry_of(table, symbol == table.outlier ? entropy::kOutlierIndex : in_window);
      }
    });
    warp_.sync();
  }

  // The symbol of an element, whose lower bytes are written.
  [[nodiscard]] BITSNAP_DEVICE std::uint32_t take_apart_one(std::uint64_t index) const {
    std::uint32_t element = load_element<kBytes>(job_.elements + index * kBytes);
    if constexpr (kRotated) element = rotate_left<kBytes>(element);
    std::uint8_t* const rest = job_.payload + 1 + kSizesBytes + index * (kBytes - 1);
    for (unsigned k = 0; k < kBytes - 1; ++k) rest[k] = static_cast<std::uint8_t>(element >> (8 * k));
    return element >> (8 * (kBytes - 1));
  }

  [[nodiscard]] BITSNAP_DEVICE std::uint64_t first_of(std::uint64_t round) const {
    return round * kRoundElements + group_ * kLanes;
  }

  BITSNAP_DEVICE void take_apart(std::uint64_t round) const {
    warp_.each([&](unsigned lane, unsigned) {
      const std::uint64_t index = first_of(round) + lane;
      if (index < job_.count) (void)take_apart_one(index);
    });
  }

  BITSNAP_DEVICE void encode_round(std::uint64_t round) {
    typename Warp::template PerLane<std::uint32_t> entries;
    warp_.each([&](unsigned lane, unsigned slot) {
      const std::uint64_t index = first_of(round) + lane;
      entries[slot] = entries_[index < job_.count ? take_apart_one(index) : job_.blocks[block_].filler];
    });
    const std::uint64_t escaped =
        warp_.vote([&](unsigned, unsigned slot) { return (entries[slot] & 0xffff) == escape_; });
    // A state gives its lower byte to the stream if the symbol would carry it beyond 16 bits.
    const std::uint64_t gives =
        warp_.vote([&](unsigned, unsigned slot) { return states_[slot] >> 8 >= (entries[slot] & 0xff); });
    out_ -= count_bits(gives);
    warp_.each([&](unsigned lane, unsigned slot) {
      std::uint32_t state = states_[slot];
      if ((gives >> lane & 1) != 0) {
        out_[rank_of(lane, gives)] = static_cast<std::uint8_t>(state);
        state >>= 8;
      }
      const std::uint32_t frequency = entries[slot] & 0xff;
      std::uint32_t quotient = state * (entries[slot] >> 16) >> 16;  // or one less: see rans_reciprocal()
      if (state - quotient * frequency >= frequency) ++quotient;
      states_[slot] = state + quotient * (256 - frequency) + (entries[slot] >> 8 & 0xff);
      if (lane == 0) masks_[round * kGroups + group_] = escaped;
    });
    escapes_ += count_bits(escaped);
  }

  BITSNAP_DEVICE void write_sizes(const EncodedGroup* groups, std::uint64_t escapes) const {
    warp_.each([&](unsigned lane, unsigned) {
      if (lane == 0) job_.payload[0] = job_.form;
      if (lane > kGroups) return;
      const std::uint64_t number = lane < kGroups ? groups[lane].stream_bytes : escapes;
      for (unsigned k = 0; k < 4; ++k) job_.payload[1 + 4 * lane + k] = static_cast<std::uint8_t>(number >> (8 * k));
    });
  }

  // The symbols of the escaped elements, in their order: each lane writes those of one group of one round.
  BITSNAP_DEVICE void write_escapes(std::uint8_t* to) const {
    const std::uint64_t masks = rounds_of(job_.count) * kGroups;
    for (std::uint64_t first = 0; first < masks; first += kLanes) {
      typename Warp::template PerLane<std::uint64_t> places;
      const auto mask_of = [&](unsigned lane) -> std::uint64_t {
        const std::uint64_t number = first + lane;
        if (number >= masks || job_.blocks[number * kLanes / kBlockElements].table.single) return 0;
        return masks_[number];
      };
      warp_.each([&](unsigned lane, unsigned slot) { places[slot] = count_bits(mask_of(lane)); });
      const std::uint64_t sum = warp_.sum_before(places);
      warp_.each([&](unsigned lane, unsigned slot) {
        std::uint64_t place = places[slot];
        for (std::uint64_t mask = mask_of(lane); mask != 0; mask &= mask - 1) {
          const std::uint64_t index = (first + lane) * kLanes + lowest_bit(mask);
          std::uint32_t element = load_element<kBytes>(job_.elements + index * kBytes);
          if constexpr (kRotated) element = rotate_left<kBytes>(element);
          to[place++] = static_cast<std::uint8_t>(element >> (8 * (kBytes - 1)));
        }
      });
      to += sum;
    }
  }

  const Warp warp_;
  const EncodeJob job_;
  const unsigned group_;
  std::uint32_t* const entries_;
  std::uint64_t* const masks_;
  std::uint8_t* out_;
  typename Warp::template PerLane<std::uint32_t> states_;
  std::uint64_t block_ = ~std::uint64_t{0};
  bool is_single_ = false;
  std::uint32_t escape_ = 0;
  std::uint64_t escapes_ = 0;
};

}  // namespace bitsnap::gpu
