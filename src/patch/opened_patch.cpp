// Reading header, description and table.
#include "patch/opened_patch.hpp"

#include <fmt/format.h>

#include "base/try.hpp"
#include "codec/payload_checks.hpp"
#include "container/packed_bytes.hpp"
#include "patch/numbers.hpp"

namespace bitsnap::patch {
namespace {

using codec::corrupt;

Result<Description> read_description(ByteCursor& cursor, std::uint32_t stored_bytes, std::uint32_t raw_bytes,
                                     const DecodeLimits& limits) {
  BITSNAP_ASSIGN(const ConstByteSpan stored, cursor.take(stored_bytes, "description"));
  if (raw_bytes > limits.index_bytes) {
    return fail(ErrorKind::resource_exhausted,
                fmt::format("the description has {} bytes, more than the limit of {}", raw_bytes, limits.index_bytes));
  }
  if (stored_bytes == raw_bytes) return parse_description(as_text(stored), limits);
  BITSNAP_TRY(container::check_packed_size(stored_bytes, raw_bytes));
  BITSNAP_ASSIGN(const std::vector<std::byte> raw, container::unpack_bytes(stored, raw_bytes));
  return parse_description(as_text(raw), limits);
}

// The bytes of a payload's size at most.
constexpr unsigned kSizeBytes = 5;

Result<void> read_table(ByteCursor& cursor, OpenedPatch& patch) {
  if (patch.table.size() > cursor.remaining()) {
    return fail(ErrorKind::truncated,
                fmt::format("{} slabs, but only {} bytes remain", patch.table.size(), cursor.remaining()));
  }
  std::vector<std::uint64_t> sizes;
  for (std::uint64_t i = 0; i < patch.table.size(); ++i) {
    BITSNAP_ASSIGN(const std::uint64_t size, read_number(cursor, kSizeBytes, "size of a payload"));
    SlabEntry& own = patch.slabs.emplace_back();
    sizes.push_back(size);
    if (size == 0) continue;
    BITSNAP_ASSIGN(own.expected, cursor.read<std::uint32_t>("expected hash"));
    BITSNAP_ASSIGN(own.result, cursor.read<std::uint32_t>("resulting hash"));
  }
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    BITSNAP_ASSIGN(patch.slabs[i].payload, cursor.take(sizes[i], "payload"));
  }
  if (cursor.remaining() != 0) return corrupt("{} bytes after the last payload", cursor.remaining());
  return {};
}

}  // namespace

Result<OpenedPatch> open_patch(ConstByteSpan bytes, const DecodeLimits& limits, std::size_t& size) {
  ByteCursor header(bytes);
  BITSNAP_ASSIGN(const auto magic, header.read<std::uint64_t>("magic of a patch"));
  if (magic != kMagic) return corrupt("the bytes do not begin as a patch does");
  BITSNAP_ASSIGN(const auto version, header.read<std::uint32_t>("format version"));
  if (version != kFormatVersion) {
    return fail(ErrorKind::unsupported, fmt::format("the patch has format {}, expected {}", version, kFormatVersion));
  }
  BITSNAP_ASSIGN(const auto zero, header.read<std::uint32_t>("reserved bytes"));
  BITSNAP_ASSIGN(const auto total, header.read<std::uint64_t>("size of the patch"));
  if (total < kHeaderBytes + kTailBytes) return corrupt("size of the patch is {}", total);
  if (total > bytes.size()) {
    return fail(ErrorKind::truncated,
                fmt::format("the patch has {} bytes, but only {} are there", total, bytes.size()));
  }
  size = static_cast<std::size_t>(total);
  const ConstByteSpan hashed = bytes.first(size - kTailBytes);
  if (hash64(hashed) != load_le<std::uint64_t>(hashed.data() + hashed.size())) {
    return corrupt("the patch does not match its hash: some of its bytes were changed");
  }
  if (zero != 0) return corrupt("reserved bytes are not zero");
  OpenedPatch patch;
  BITSNAP_ASSIGN(const auto stored_bytes, header.read<std::uint32_t>("size of the description"));
  BITSNAP_ASSIGN(const auto raw_bytes, header.read<std::uint32_t>("size of the description"));
  patch.expected = load_le<SnapshotId>(bytes.data() + 32);
  patch.result = load_le<SnapshotId>(bytes.data() + 48);
  ByteCursor cursor(hashed.subspan(kHeaderBytes));
  BITSNAP_ASSIGN(patch.description, read_description(cursor, stored_bytes, raw_bytes, limits));
  BITSNAP_ASSIGN(patch.table, SlabTable::make(patch.description));
  BITSNAP_TRY(read_table(cursor, patch));
  return patch;
}

}  // namespace bitsnap::patch
