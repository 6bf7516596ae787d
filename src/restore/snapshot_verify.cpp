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
#include "restore/needed_payloads.hpp"
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

namespace {

using ChunkErrors = std::vector<std::pair<std::size_t, Error>>;  // by the chunk's number in the file

// Verifies by batches; returns the errors in the order of the chunks.
Result<ChunkErrors> verify_chunks(const Snapshot::Impl& impl, bool decode, const RunOptions& options) {
  std::uint64_t total = 0;
  for (const StreamInfo& info : impl.index().streams.streams) total += info.elements * element_size(info.dtype);
  const restore::ChunkGroups& groups = impl.groups();
  restore::NeededPayloads needed;
  for (std::size_t place = 0; place < impl.index().chunks.size(); ++place) {
    needed.add(impl, groups.chunk_at(place), decode && !impl.has_decoded());
  }
  const restore::ReadsAhead ahead(std::move(needed));
  restore::RunControl control(options, impl.limits, total);
  std::vector<ChunkErrors> errors(control.slots());
  ChunkErrors found;
  const auto work = [&](std::size_t item, std::size_t slot) -> Result<void> {
    const auto [begin, end] = groups.batch(item);
    const ReadContext::Expected expected = impl.expected_again(item);
    control.context(slot).forget();
    errors[slot].clear();
    for (std::size_t place = begin; place < end; ++place) {
      BITSNAP_TRY(control.check_cancelled());
      const std::size_t number = groups.chunk_at(place);
      const auto [stream, chunk] = impl.chunk_numbered(number);
      ReadContext& context = control.context(slot);
      context.expect_again(expected);
      Result<void> verified = restore::verify_chunk(impl, stream, chunk, decode, context);
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
      const auto [stream, chunk] = impl.chunk_numbered(groups.chunk_at(place));
      control.add(impl.chunk_bytes(stream, chunk));
    }
    return {};
  };
  BITSNAP_TRY(control.executor().run_ordered(groups.batches(), control.slots(), work, commit, &control.cancel()));
  std::ranges::sort(found, {}, &ChunkErrors::value_type::first);
  return found;
}

}  // namespace

Result<std::vector<Damage>> Snapshot::verify(bool decode, const RunOptions& options) const {
  return no_throw("verify", [&]() -> Result<std::vector<Damage>> {
    BITSNAP_ASSIGN(ChunkErrors found, verify_chunks(*impl_, decode, options));
    std::vector<Damage> damages;
    if (const auto values = tree(); !values) {
      if (restore::ends_verification(values.error())) return tl::unexpected(values.error());
      damages.push_back(Damage{"the tree of values", values.error()});
    }
    for (auto& [number, error] : found) {
      const auto [stream, chunk] = impl_->chunk_numbered(number);
      damages.push_back(
          Damage{container::chunk_place(impl_->index().content, impl_->stream(stream), chunk), std::move(error)});
    }
    return damages;
  });
}

Result<std::vector<DamagedTensor>> Snapshot::damaged_tensors(const RunOptions& options) const {
  return no_throw("verify", [&]() -> Result<std::vector<DamagedTensor>> {
    BITSNAP_ASSIGN(const ChunkErrors found, verify_chunks(*impl_, true, options));
    std::vector<DamagedTensor> damaged;
    if (found.empty()) return damaged;
    const std::vector<std::uint64_t>& first_chunk = impl_->index().streams.first_chunk;
    for (std::size_t tensor = 0; tensor < tensors().size(); ++tensor) {
      const std::uint64_t size = tensors()[tensor].size_bytes;
      if (size == 0) continue;
      const auto [stream, begin] = impl_->tensor_place(tensor);
      const std::uint64_t chunk_bytes = kChunkElements * element_size(impl_->stream(stream).dtype);
      const std::uint64_t first = first_chunk[stream] + begin / chunk_bytes;
      const std::uint64_t last = first_chunk[stream] + (begin + size - 1) / chunk_bytes;
      const auto error = std::ranges::lower_bound(found, first, {}, &ChunkErrors::value_type::first);
      if (error != found.end() && error->first <= last) damaged.push_back({tensor, error->second});
    }
    return damaged;
  });
}

}  // namespace bitsnap
