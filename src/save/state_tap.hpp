// A second look at what is stored: for whoever keeps the bytes of the last checkpoint in memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <bitsnap/error.hpp>
#include <bitsnap/snapshot.hpp>

#include "base/bytes.hpp"

namespace bitsnap::save {

// Sees the bytes that are stored.
class StateTap {
 public:
  StateTap() = default;
  StateTap(const StateTap&) = delete;
  StateTap& operator=(const StateTap&) = delete;
  virtual ~StateTap() = default;

  // Before the first chunk. An error ends the save with it.
  [[nodiscard]] virtual Result<void> begin(std::span<const StreamInfo> streams) = 0;
  // Each chunk once, in any order, from several threads at once: the very copy that was encoded, after what it
  // needs of its base has been read. A save that fails has shown some of them.
  virtual void take(std::size_t stream, std::uint64_t offset_bytes, ConstByteSpan bytes) noexcept = 0;
};

}  // namespace bitsnap::save
