// The encoding kernel of values by class for the baseline of every machine, and the reference for the others.
#include "entropy/class_encode_kernel.hpp"

namespace bitsnap::entropy {
namespace {

struct Entry {
  std::uint32_t reciprocal;  // x / frequency == x * reciprocal >> kReciprocalBits for all states x
  std::uint32_t frequency;
  std::uint32_t start;
  bool escaped;
};
constexpr unsigned kReciprocalBits = 24;

void fill_entries(const ClassEncodeTable& table, Entry* entries) noexcept {
  for (unsigned i = 0; i < 64; ++i) {
    const unsigned index = table.indexes[i];
    const std::uint32_t frequency = table.frequencies[index];
    entries[i] = {((1U << kReciprocalBits) + frequency - 1) / frequency, frequency, table.starts[index],
                  (index & 15) == 15};
  }
}

}  // namespace

void class_encode_scalar(ClassEncoding& at, const ClassEncodeTable& table, const std::uint8_t* contexts,
                         const std::uint16_t* values, std::size_t steps, const ReadAhead& ahead) noexcept {
  Entry entries[64];
  fill_entries(table, entries);
  for (std::size_t part = steps * kEncodeGroups; part-- > 0;) {
    const std::size_t group = part % kEncodeGroups;
    ahead.ask_for(part);
    for (std::size_t lane = kEncodeLanes; lane-- > 0;) {
      const std::size_t i = part * kEncodeLanes + lane;
      const unsigned plan = table.plans[contexts[i]];
      const unsigned value = values[i];
      if ((plan & 8) != 0) *--at.bytes = static_cast<std::uint8_t>(value);
      const unsigned left = value >> (plan & 8);
      const unsigned width = plan & 7;
      at.pending = at.pending << width | (left & ((1U << width) - 1));
      at.pending_bits += width;
      if (at.pending_bits >= 8) {
        at.pending_bits -= 8;
        *--at.bits = static_cast<std::uint8_t>(at.pending >> at.pending_bits);
      }
      const unsigned symbol = left >> width < 15 ? left >> width : 15;
      const Entry& entry = entries[(plan & 0x30) + symbol];
      if (entry.escaped) {
        at.escapes -= 2;
        __builtin_memcpy(at.escapes, values + i, 2);
      }

      std::uint32_t state = at.high[group][lane] * 256U + at.low[group][lane];
      if (state >= 256 * entry.frequency) {
        *--at.out[group] = static_cast<std::uint8_t>(state);
        state >>= 8;
      }
      const auto quotient = static_cast<std::uint32_t>(std::uint64_t{state} * entry.reciprocal >> kReciprocalBits);
      at.high[group][lane] = static_cast<std::uint8_t>(quotient);
      at.low[group][lane] = static_cast<std::uint8_t>(state - quotient * entry.frequency + entry.start);
    }
  }
}

}  // namespace bitsnap::entropy
