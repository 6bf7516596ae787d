// Appends, and a check that the written index can be read again.
#include "container/file_writer.hpp"

#include <limits>

#include <fmt/format.h>

#include "base/hash.hpp"
#include "base/no_throw.hpp"
#include "base/try.hpp"

namespace bitsnap::container {

Result<void> FileWriter::begin() {
  if (offset_ != 0) return fail(ErrorKind::internal, "snapshot: the header was already written");
  const auto header = serialize_header();
  BITSNAP_TRY(file_.append(header));
  offset_ = header.size();
  return {};
}

Result<void> FileWriter::append_payload(ConstByteSpan payload, ChunkEntry& entry) {
  if (payload.size() > std::numeric_limits<std::uint32_t>::max()) {
    return fail(ErrorKind::internal, fmt::format("snapshot: a payload of {} bytes", payload.size()));
  }
  entry.offset = payload.empty() ? 0 : offset_;
  entry.stored_bytes = static_cast<std::uint32_t>(payload.size());
  entry.stored_hash = hash64(payload);
  if (payload.empty()) return {};
  BITSNAP_TRY(file_.append(payload));
  offset_ += payload.size();
  return {};
}

Result<void> FileWriter::finish(Index& index) {
  return no_throw("snapshot", [&]() -> Result<void> {
    DecodeLimits limits;
    limits.max_cost = 1;  // of a reader who raised nothing
    SerializedIndex serialized;
    Footer footer;
    // A file that this version cannot read must not replace anything: for example a state beyond the limits, or a tree
    // with a reference to a missing tensor.
    const auto serialize = [&](Packing packing) -> Result<void> {
      BITSNAP_ASSIGN(serialized, serialize_index(index, packing));
      footer.index_offset = offset_;
      footer.index_bytes = serialized.bytes.size();
      footer.index_hash = hash64(serialized.bytes);
      footer.id = serialized.id;
      BITSNAP_ASSIGN(const Index readable, parse_index(serialized.bytes, footer, limits));
      BITSNAP_TRY(tree_of(readable, offset_ + serialized.bytes.size() + kFooterBytes, limits));
      return {};
    };
    // Many alike names and values compress so well that a reader would suspect an attack: then less well.
    Result<void> readable;
    for (const Packing packing : {Packing::small, Packing::larger, Packing::largest, Packing::plain}) {
      readable = serialize(packing);
      if (readable || readable.error().kind() != ErrorKind::resource_exhausted) break;
    }
    if (!readable) {
      return fail(ErrorKind::invalid_argument, "the state cannot be stored: " + readable.error().message());
    }
    index.id = serialized.id;
    BITSNAP_TRY(file_.append(serialized.bytes));
    BITSNAP_TRY(file_.append(serialize_footer(footer)));
    offset_ += serialized.bytes.size() + kFooterBytes;
    return {};
  });
}

}  // namespace bitsnap::container
