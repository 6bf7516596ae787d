// Verification: every payload against its stored hash, every chunk against its decoded hash.
#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "base/no_throw.hpp"
#include "base/try.hpp"
#include "container/chunk_table.hpp"
#include "restore/run_control.hpp"
#include "restore/snapshot_impl.hpp"
#include "restore/verify_chunk.hpp"

namespace bitsnap {
namespace restore {

Result<void> verify_chunk(const Snapshot::Impl& impl, std::size_t stream, std::uint64_t chunk, bool decode,
                          ReadContext& context) {
  const container::ChunkEntry& entry = impl.entry(stream, chunk);
  BITSNAP_ASSIGN(const ByteSpan payload, context.scratch().take(entry.stored_bytes));
  Result<void> read = impl.reader->read_payload(entry, payload);
  if (!read) return tl::unexpected(std::move(read).error().within(impl.place(stream, chunk)));
  if (!decode) return {};
  BITSNAP_ASSIGN(const ByteSpan out, context.scratch().take(impl.chunk_bytes(stream, chunk)));
  return impl.decode_chunk(stream, chunk, out, context, payload);
}

}  // namespace restore

Result<std::vector<Damage>> Snapshot::verify(bool decode, const RunOptions& options) const {
  return no_throw("verify", [&]() -> Result<std::vector<Damage>> {
    const container::Index& index = impl_->index();
    const std::vector<std::uint64_t>& first_chunk = index.streams.first_chunk;
    std::uint64_t total = 0;
    for (const StreamInfo& info : streams()) total += info.elements * element_size(info.dtype);

    restore::RunControl control(options, impl_->limits, total);
    std::vector<std::optional<Error>> errors(control.slots());
    std::vector<Damage> damages;
    // Streams are not empty, so that the numbers of their first chunks differ.
    const auto locate = [&](std::size_t item) {
      const auto after = std::upper_bound(first_chunk.begin(), first_chunk.end(), std::uint64_t{item});
      const auto stream = static_cast<std::size_t>(after - first_chunk.begin()) - 1;
      return std::pair(stream, item - first_chunk[stream]);
    };
    const auto work = [&](std::size_t item, std::size_t slot) -> Result<void> {
      const auto [stream, chunk] = locate(item);
      errors[slot].reset();
      Result<void> verified = restore::verify_chunk(*impl_, stream, chunk, decode, control.context(slot));
      if (verified) return {};
      if (restore::ends_verification(verified.error())) return verified;
      errors[slot] = std::move(verified).error();
      return {};
    };
    const auto commit = [&](std::size_t item, std::size_t slot) -> Result<void> {
      const auto [stream, chunk] = locate(item);
      if (errors[slot]) {
        damages.push_back(
            Damage{container::chunk_place(index.content, impl_->stream(stream), chunk), std::move(*errors[slot])});
      }
      control.add(impl_->chunk_bytes(stream, chunk));
      return {};
    };
    BITSNAP_TRY(control.executor().run_ordered(index.chunks.size(), control.slots(), work, commit, &control.cancel()));
    return damages;
  });
}

}  // namespace bitsnap
