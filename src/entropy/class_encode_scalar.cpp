// The scalar kernel that encodes values by class, and the reference for the other kernels.
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

// Whether a lane writes stream bytes, low bits or low bytes is random, so branches would be mispredicted. Only escapes,
// which are rare, have a branch. A byte that is not needed is overwritten or stays below the cursor.
template <bool kBytes, bool kOctaves>
void encode(ClassEncoding& at, const ClassEncodeTable& table, const std::uint8_t* contexts, const std::uint16_t* values,
            std::size_t rounds, const ReadAhead& ahead) noexcept {
  constexpr std::size_t kWordLanes = 8;  // together at most 56 bits
  Entry entries[64];
  fill_entries(table, entries);
  std::uint8_t plans[32];
  __builtin_memcpy(plans, table.plans, sizeof plans);
  std::uint8_t* bits = at.bits;
  std::uint64_t pending = at.pending;
  unsigned pending_bits = at.pending_bits;
  std::uint8_t* bytes = at.bytes;
  std::uint8_t* escapes = at.escapes;
  ReadAheadCursor reading(ahead, rounds * kEncodeGroups);
  for (std::size_t part = rounds * kEncodeGroups; part-- > 0;) {
    const std::size_t group = part % kEncodeGroups;
    std::uint8_t* const low = at.low[group];
    std::uint8_t* const high = at.high[group];
    std::uint8_t* out = at.out[group];
    reading.down();
    for (std::size_t end = kEncodeLanes; end > 0; end -= kWordLanes) {
#pragma GCC unroll 8
      for (std::size_t back = 1; back <= kWordLanes; ++back) {
        const std::size_t lane = end - back;
        const std::size_t i = part * kEncodeLanes + lane;
        const unsigned plan = plans[contexts[i] & 31];
        const unsigned value = values[i];
        unsigned shift = plan & 15;
        unsigned symbol = value >> shift;
        if constexpr (kOctaves) {
          const unsigned fineness = 3 - (plan >> 6);
          const unsigned leading = 31 - static_cast<unsigned>(__builtin_clz(value | 1));
          const unsigned octave = leading > shift + fineness ? leading - shift - fineness : 0;
          symbol = (symbol >> octave) + (octave << fineness);
          symbol = symbol < 15 ? symbol : 15;
          // An escaped value has the low bits of a value below the octaves, because its reader does not know the value.
          shift += entries[(plan & 0x30) + symbol].escaped ? 0 : octave;
        }
        unsigned left = value;
        if constexpr (kBytes) {
          bytes[-1] = static_cast<std::uint8_t>(value);
          bytes -= shift >> 3;
          left >>= shift & 8;
        }
        const unsigned width = shift & 7;
        pending = pending << width | (left & ((1U << width) - 1));
        pending_bits += width;
        if constexpr (!kOctaves) symbol = symbol < 15 ? symbol : 15;
        const Entry& entry = entries[(plan & 0x30) + symbol];
        if (entry.escaped) [[unlikely]] {
          escapes -= 2;
          __builtin_memcpy(escapes, values + i, 2);
        }

        std::uint32_t state = high[lane] * 256U + low[lane];
        const unsigned shrinks = high[lane] >= entry.frequency ? 1 : 0;
        out[-1] = static_cast<std::uint8_t>(state);
        out -= shrinks;
        state >>= 8 * shrinks;
        const auto quotient = static_cast<std::uint32_t>(std::uint64_t{state} * entry.reciprocal >> kReciprocalBits);
        high[lane] = static_cast<std::uint8_t>(quotient);
        low[lane] = static_cast<std::uint8_t>(state - quotient * entry.frequency + entry.start);
      }
      // From the most significant bit down, above the pending bits; at most 63 bits.
      const std::uint64_t aligned = pending << (-pending_bits & 63);
      __builtin_memcpy(bits - 8, &aligned, 8);
      bits -= pending_bits >> 3;
      pending_bits &= 7;
    }
    at.out[group] = out;
  }
  at.bits = bits;
  at.pending = pending;
  at.pending_bits = pending_bits;
  at.bytes = bytes;
  at.escapes = escapes;
}

void encode_any(ClassEncoding& at, const ClassEncodeTable& table, const std::uint8_t* contexts,
                const std::uint16_t* values, std::size_t rounds, const ReadAhead& ahead) noexcept {
  const auto kernel = table.has_octaves ? encode<true, true>
                      : table.has_bytes ? encode<true, false>
                                        : encode<false, false>;
  kernel(at, table, contexts, values, rounds, ahead);
}

}  // namespace

constinit const ClassEncodeKernels ClassEncodeKernels::kScalar = {encode_any};

}  // namespace bitsnap::entropy
