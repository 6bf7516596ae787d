// Verification: checks the hash of every payload and of every decoded chunk.
#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>
#include <vector>

#include "base/no_throw.hpp"
#include "base/try.hpp"
#include "codec/codec_id.hpp"
#include "container/chunk_table.hpp"
#include "restore/run_control.hpp"
#include "restore/snapshot_impl.hpp"
#include "restore/verify_chunk.hpp"

namespace bitsnap {
namespace restore {
namespace {

// nullopt if the chunk is not one of equal elements.
std::optional<ReadContext::Constant> constant_of(const Snapshot::Impl& impl, std::size_t stream, std::uint64_t chunk,
                                                 ConstByteSpan payload) {
  const container::ChunkEntry& entry = impl.entry(stream, chunk);
  ReadContext::Constant constant;
  if (entry.codec != static_cast<std::uint16_t>(codec::CodecId::constant) || entry.inputs[0] != container::kNoInput ||
      entry.parameters != container::kNoParameters || payload.size() != element_size(impl.stream(stream).dtype)) {
    return std::nullopt;
  }
  constant.dtype = impl.stream(stream).dtype;
  constant.size_bytes = impl.chunk_bytes(stream, chunk);
  std::ranges::copy(payload, constant.element.begin());
  constant.decoded_hash = entry.decoded_hash;
  return constant;
}

}  // namespace

Result<void> verify_chunk(const Snapshot::Impl& impl, std::size_t stream, std::uint64_t chunk, bool decode,
                          ReadContext& context) {
  const container::ChunkEntry& entry = impl.entry(stream, chunk);
  BITSNAP_ASSIGN(const ByteSpan payload, context.scratch().take(entry.stored_bytes));
  Result<void> read = impl.reader->read_payload(entry, payload);
  if (!read) return tl::unexpected(std::move(read).error().within(impl.place(stream, chunk)));
  if (!decode) return {};
  const std::optional<ReadContext::Constant> constant = constant_of(impl, stream, chunk, payload);
  if (constant && context.is_last_constant(*constant)) return {};
  BITSNAP_ASSIGN(const ByteSpan out, context.scratch().take(impl.chunk_bytes(stream, chunk)));
  BITSNAP_TRY(impl.decode_chunk(stream, chunk, out, context, payload));
  if (constant) context.set_last_constant(*constant);
  return {};
}

}  // namespace restore

Result<std::vector<Damage>> Snapshot::verify(bool decode, const RunOptions& options) const {
  return no_throw("verify", [&]() -> Result<std::vector<Damage>> {
    const container::Index& index = impl_->index();
    std::uint64_t total = 0;
    for (const StreamInfo& info : streams()) total += info.elements * element_size(info.dtype);

    // Verified by batches, reported in the order of the chunks.
    const restore::ChunkGroups& groups = impl_->groups();
    restore::RunControl control(options, impl_->limits, total);
    std::vector<std::vector<std::pair<std::size_t, Error>>> errors(control.slots());  // by chunk number
    std::vector<std::pair<std::size_t, Error>> found;
    const auto work = [&](std::size_t item, std::size_t slot) -> Result<void> {
      const auto [begin, end] = groups.batch(item);
      const ReadContext::Expected expected = impl_->expected_again(item);
      control.context(slot).forget();
      errors[slot].clear();
      for (std::size_t place = begin; place < end; ++place) {
        BITSNAP_TRY(control.check_cancelled());
        const std::size_t number = groups.chunk_at(place);
        const auto [stream, chunk] = impl_->chunk_numbered(number);
        ReadContext& context = control.context(slot);
        context.expect_again(expected);
        Result<void> verified = restore::verify_chunk(*impl_, stream, chunk, decode, context);
        if (verified) continue;
        if (restore::ends_verification(verified.error())) return verified;
        errors[slot].emplace_back(number, std::move(verified).error());
      }
      return {};
    };
    const auto commit = [&](std::size_t item, std::size_t slot) -> Result<void> {
      std::ranges::move(errors[slot], std::back_inserter(found));
      const auto [begin, end] = groups.batch(item);
      for (std::size_t place = begin; place < end; ++place) {
        const auto [stream, chunk] = impl_->chunk_numbered(groups.chunk_at(place));
        control.add(impl_->chunk_bytes(stream, chunk));
      }
      return {};
    };
    BITSNAP_TRY(control.executor().run_ordered(groups.batches(), control.slots(), work, commit, &control.cancel()));
    std::ranges::sort(found, {}, &std::pair<std::size_t, Error>::first);
    std::vector<Damage> damages;
    if (const auto values = tree(); !values) {
      if (restore::ends_verification(values.error())) return tl::unexpected(values.error());
      damages.push_back(Damage{"the tree of values", values.error()});
    }
    for (auto& [number, error] : found) {
      const auto [stream, chunk] = impl_->chunk_numbered(number);
      damages.push_back(Damage{container::chunk_place(index.content, impl_->stream(stream), chunk), std::move(error)});
    }
    return damages;
  });
}

}  // namespace bitsnap
