// The written form of a snapshot's id: 32 lower-case hexadecimal digits, high 64 bits first.
#include <fmt/format.h>

#include <bitsnap/snapshot.hpp>

#include "json/json_text.hpp"

namespace bitsnap {

std::string SnapshotId::to_hex() const { return fmt::format("{:016x}{:016x}", high, low); }

std::optional<SnapshotId> SnapshotId::from_hex(std::string_view text) {
  if (text.size() != 32) return std::nullopt;
  const std::optional<std::uint64_t> high = json::parse_hex(text.substr(0, 16));
  const std::optional<std::uint64_t> low = json::parse_hex(text.substr(16));
  if (!high || !low) return std::nullopt;
  return SnapshotId{*low, *high};
}

}  // namespace bitsnap
