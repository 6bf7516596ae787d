// Writes 16-bit values in lanes with the table of their class: docs/spec/rans.md, "Values by class". class_lanes.hpp is
// the reading side.
//
// ClassLanesEncoder takes the values from the last to the first, in rounds, so the caller's values stay in the
// cache. Its memory comes from the open frame of a Scratch. It belongs to one thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/scratch.hpp"
#include "entropy/class_encode_kernel.hpp"
#include "entropy/class_lanes.hpp"

namespace bitsnap::entropy {

class ClassLanesEncoder {
 public:
  // For at most rounds * kRansRoundElements values. `tables` must come from choose_class_tables().
  [[nodiscard]] Result<void> open(const ClassTables& tables, std::size_t rounds, Scratch& scratch);

  // Encodes the rounds before the previously encoded ones. Precondition: every context is below kClassContexts.
  void encode(const std::uint8_t* contexts, const std::uint16_t* values, std::size_t rounds,
              const ReadAhead& ahead) noexcept;

  // Ends the coding and returns the payload's size. encode() must not be called afterwards.
  [[nodiscard]] std::size_t finish() noexcept;

  // Writes the payload of finish() bytes.
  void write(std::byte* out) const noexcept;

  // The cheapest value of this context, for the unused lanes of the last round.
  [[nodiscard]] std::uint16_t cheapest_value(std::uint8_t context) const noexcept;

 private:
  ClassTables tables_;
  ClassEncodeTable table_{};
  ClassEncoding at_{};
  std::array<std::uint8_t*, kRansGroups> stream_ends_{};
  std::uint8_t* bits_end_ = nullptr;
  std::uint8_t* bytes_end_ = nullptr;
  std::uint8_t* escapes_end_ = nullptr;
  std::size_t bit_count_ = 0;
};

}  // namespace bitsnap::entropy
