// The written form of a snapshot's id: 32 lower-case hexadecimal digits, high 64 bits first.
#include <bitsnap/snapshot.hpp>

#include "container/json_text.hpp"

namespace bitsnap {

std::string SnapshotId::to_hex() const {
  std::string text;
  text.reserve(32);
  container::append_hex(text, high);
  container::append_hex(text, low);
  return text;
}

std::optional<SnapshotId> SnapshotId::from_hex(std::string_view text) {
  if (text.size() != 32) return std::nullopt;
  const std::optional<std::uint64_t> high = container::parse_hex(text.substr(0, 16));
  const std::optional<std::uint64_t> low = container::parse_hex(text.substr(16));
  if (!high || !low) return std::nullopt;
  return SnapshotId{*low, *high};
}

}  // namespace bitsnap
