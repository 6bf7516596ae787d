// Values of 16 bits coded in lanes with the table of the class that their context belongs to, reading:
// docs/spec/rans.md, "Values by class". A context, 0 to 31, is what the reader knows of a value beforehand; its plan
// says how many low bits stay as they are and which of up to four tables codes the rest.
//
// ClassLanesDecoder reads steps in their order, so that its caller makes contexts and uses values while they are in the
// cache. It refers to the payload and belongs to one thread. The writing side is class_lanes_encode.hpp.
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
inline constexpr std::uint8_t kClassEscape = 15;       // the value stands among the escapes
inline constexpr std::uint8_t kPlanShift = 0x0f;       // bits of a plan: low bits of the first symbols
inline constexpr std::uint8_t kPlanClass = 0x30;       // and 16 times the class
inline constexpr std::uint8_t kPlanCoarseness = 0xc0;  // and 64 times the coarseness of its symbols
inline constexpr unsigned kPlanCoarsenessUnit = 64;
inline constexpr unsigned kPlanClassUnit = kClassSymbols;  // so that plan & kPlanClass is where a class begins

struct ClassTables {
  std::size_t classes = 1;
  std::array<std::uint8_t, kClassContexts> plans;                                // by context
  std::array<std::array<std::uint8_t, kClassSymbols>, kMaxClasses> frequencies;  // of a class sum to kRansScale
};

[[nodiscard]] constexpr std::size_t class_tables_size(std::size_t classes) noexcept {
  return 1 + kClassContexts + kClassSymbols * classes;
}

// Reads tables from the front of `bytes`, which takes class_tables_size(tables.classes).
[[nodiscard]] Result<void> read_class_tables(ConstByteSpan bytes, ClassTables& tables);

class ClassLanesDecoder {
 public:
  // Reads everything that stands before the streams; truncated or corrupt where it is not a payload.
  [[nodiscard]] Result<void> open(ConstByteSpan payload);

  // The next steps * kRansStepElements values. Any payload gives some; check_end() tells later. Precondition: every
  // context is below kClassContexts.
  void decode(const std::uint8_t* contexts, std::size_t steps, std::uint16_t* values, const ReadAhead& ahead) noexcept;

  // corrupt unless all that was coded was decoded, and no more.
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
