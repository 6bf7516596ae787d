// Reads 16-bit values that are coded in lanes with one of up to four tables: docs/spec/rans.md, "Values by class". A
// *context*, 0 to 31, is what the reader knows of a value beforehand. The *plan* of a context states its class, that
// is, its table, and how many low bits are stored as they are.
//
// ClassLanesDecoder decodes one round at a time, so the caller's contexts and values stay in the cache. It refers to
// the payload and belongs to one thread. class_lanes_encode.hpp is the writing side.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/bytes.hpp"
#include "entropy/class_decode_kernel.hpp"
#include "entropy/rans.hpp"

namespace bitsnap::entropy {

// On disk: never change.
inline constexpr std::size_t kClassContexts = 32;
inline constexpr std::size_t kMaxClasses = 4;
inline constexpr std::size_t kClassSymbols = 16;       // of a class: 0 to 14 and the escape
inline constexpr std::uint8_t kClassEscape = 15;       // the value is stored as an escape
inline constexpr std::uint8_t kPlanShift = 0x0f;       // bits of a plan: the low bits of its first symbols,
inline constexpr std::uint8_t kPlanClass = 0x30;       // 16 times the class,
inline constexpr std::uint8_t kPlanCoarseness = 0xc0;  // 64 times the coarseness of its symbols
inline constexpr unsigned kPlanCoarsenessUnit = 64;
inline constexpr unsigned kPlanClassUnit = kClassSymbols;  // so plan & kPlanClass is where the class begins

struct ClassTables {
  std::size_t classes = 1;
  std::array<std::uint8_t, kClassContexts> plans;                                // by context
  std::array<std::array<std::uint8_t, kClassSymbols>, kMaxClasses> frequencies;  // each class sums to kRansScale
};

[[nodiscard]] constexpr std::size_t class_tables_size(std::size_t classes) noexcept {
  return 1 + kClassContexts + kClassSymbols * classes;
}

// Reads tables of class_tables_size(tables.classes) bytes from the front of `bytes`.
[[nodiscard]] Result<void> read_class_tables(ConstByteSpan bytes, ClassTables& tables);

// Starts the table of kernels that decode or encode: the plans of the contexts, and what any of them needs.
template <typename Table>
[[nodiscard]] Table table_of_plans(const ClassTables& from) noexcept {
  Table table{};
  for (std::size_t context = 0; context < kClassContexts; ++context) {
    const std::uint8_t plan = from.plans[context];
    table.plans[context] = plan;
    table.has_bits |= (plan & 7) != 0;
    table.has_bytes |= (plan & 8) != 0;
    table.has_octaves |= (plan & kPlanCoarseness) != 0;
  }
  return table;
}

class ClassLanesDecoder {
 public:
  // Reads everything before the streams; truncated or corrupt if `payload` is no payload.
  [[nodiscard]] Result<void> open(ConstByteSpan payload);

  // Decodes the next rounds * kRansRoundElements values. Damaged payloads give some values; check_end() reports the
  // damage. Precondition: every context is below kClassContexts.
  void decode(const std::uint8_t* contexts, std::size_t rounds, std::uint16_t* values, const ReadAhead& ahead) noexcept;

  // corrupt unless exactly all coded values were decoded.
  [[nodiscard]] Result<void> check_end() const;

 private:
  ClassDecodeTable table_{};
  ClassDecoding at_{};
  std::array<const std::uint8_t*, kRansGroups> stream_ends_{};
  std::uint64_t bits_end_ = 0;
  const std::uint8_t* bytes_end_ = nullptr;
  const std::uint8_t* escapes_end_ = nullptr;
};

}  // namespace bitsnap::entropy
