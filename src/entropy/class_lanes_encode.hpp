// Values of 16 bits coded in lanes with the table of the class that their context belongs to, writing:
// docs/spec/rans.md, "Values by class". class_lanes.hpp is the other side.
//
// ClassLanesEncoder takes the values from the last to the first, in steps, so that its caller makes them while they are
// in the cache. Its memory comes from a Scratch and lasts as long as the frame it was taken in; one thread.
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
  // For at most steps * kRansStepElements values. Tables are those of choose_class_tables().
  [[nodiscard]] Result<void> open(const ClassTables& tables, std::size_t steps, Scratch& scratch);

  // The steps before those that were given last. Precondition: every context is below kClassContexts.
  void encode(const std::uint8_t* contexts, const std::uint16_t* values, std::size_t steps,
              const ReadAhead& ahead) noexcept;

  // Ends the coding; nothing can be encoded any more. Returns the payload's size.
  [[nodiscard]] std::size_t finish() noexcept;

  // Writes the payload, as many bytes as finish() said.
  void write(std::byte* out) const noexcept;

  // A value of this context that costs least: for the lanes of the last step that stand for nothing.
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
