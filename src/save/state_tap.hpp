// Lets a caller of write_snapshot() see the stored bytes, to keep the state in memory as the next base.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <bitsnap/error.hpp>
#include <bitsnap/snapshot.hpp>

#include "base/bytes.hpp"

namespace bitsnap::save {

class StateTap {
 public:
  StateTap() = default;
  StateTap(const StateTap&) = delete;
  StateTap& operator=(const StateTap&) = delete;
  virtual ~StateTap() = default;

  // Called before the first chunk. An error ends the save.
  [[nodiscard]] virtual Result<void> begin(std::span<const StreamInfo> streams) = 0;
  // Called once for each chunk, in any order and from several threads at once, with the private copy that is encoded.
  // The chunk of the base has been read by then. A save that fails may have passed some chunks.
  virtual void take(std::size_t stream, std::uint64_t offset_bytes, ConstByteSpan bytes) noexcept = 0;
};

}  // namespace bitsnap::save
