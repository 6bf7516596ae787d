// Decodes a chunk with everything that it depends on, and ranges of streams from chunks.
//
// Recursive: a chunk reads its inputs, which read theirs. The ReadContext counts each chunk, bounds the depth and the
// number of chunks, and caches those that may be needed again. Inputs are decoded before the payload is read, so a
// chunk holds nothing but its inputs while deeper ones are decoded.
#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "base/hash.hpp"
#include "base/try.hpp"
#include "codec/registry.hpp"
#include "container/chunk_table.hpp"
#include "restore/snapshot_impl.hpp"

namespace bitsnap {
// The elements, in this file or in a base, that a chunk is coded against.
struct Snapshot::Impl::Source {
  std::shared_ptr<const Base> base;  // nullptr: this file
  std::size_t stream = 0;
  std::uint64_t first = 0;  // element
  DType dtype = DType::opaque;
};

std::size_t Snapshot::Impl::chunk_bytes(std::size_t stream_number, std::uint64_t chunk) const noexcept {
  const StreamInfo& info = stream(stream_number);
  return static_cast<std::size_t>(container::chunk_elements(info, chunk)) * element_size(info.dtype);
}

std::uint64_t Snapshot::Impl::chunk_cost(std::size_t stream_number, std::uint64_t chunk) const noexcept {
  const std::uint16_t codec = entry(stream_number, chunk).codec;
  const bool is_fill = codec == static_cast<std::uint16_t>(codec::CodecId::constant) ||
                       codec == static_cast<std::uint16_t>(codec::CodecId::same);
  return restore::WorkBudget::cost_of(chunk_bytes(stream_number, chunk), is_fill);
}

bool Snapshot::Impl::has_chunk(std::size_t stream_number, std::uint64_t chunk) const noexcept {
  return stream_number < index().streams.streams.size() && chunk < stream(stream_number).chunk_count();
}

Snapshot::Impl::ChunkNumber Snapshot::Impl::chunk_numbered(std::size_t number) const noexcept {
  const std::size_t stream = index().streams.stream_of_chunk(number);
  return {stream, number - index().streams.first_chunk[stream]};
}

bool Snapshot::Impl::uses_base(std::size_t stream_number, const container::ChunkEntry& entry) const noexcept {
  return std::any_of(entry.inputs.begin(), entry.inputs.end(), [&](std::uint8_t input) {
    return input != container::kNoInput && index().encoding.streams[stream_number].inputs[input].base.has_value();
  });
}

std::string Snapshot::Impl::place(std::size_t stream_number, std::uint64_t chunk) const {
  return fmt::format("{}, {}", reader->path(), container::chunk_place(index().content, stream(stream_number), chunk));
}

Result<Snapshot::Impl::Source> Snapshot::Impl::find_source(std::size_t stream_number, std::uint64_t chunk,
                                                           std::uint8_t input_number) const {
  const container::StreamInput& input = index().encoding.streams[stream_number].inputs[input_number];
  Source source;
  source.stream = static_cast<std::size_t>(input.stream);
  // Opening the file checked this for overflow and, within the file, against the stream's end.
  source.first = input.element + chunk * kChunkElements;
  if (!input.base) {
    source.dtype = stream(source.stream).dtype;
    return source;
  }
  BITSNAP_ASSIGN(source.base, base(*input.base));
  const std::span<const StreamInfo> streams = source.base->streams();
  if (input.stream >= streams.size()) {
    return fail(ErrorKind::corrupt, fmt::format("needs stream {} of its base {}, which has {} streams", input.stream,
                                                source.base->name(), streams.size()));
  }
  const std::uint64_t end = source.first + container::chunk_elements(stream(stream_number), chunk);
  if (end > streams[source.stream].elements) {
    return fail(ErrorKind::corrupt,
                fmt::format("needs elements {} to {} of stream {} of its base {}, which has {} elements", source.first,
                            end, source.stream, source.base->name(), streams[source.stream].elements));
  }
  source.dtype = streams[source.stream].dtype;
  return source;
}

Result<void> Snapshot::Impl::read_source(const Source& source, ByteSpan out, ReadContext& context) const {
  if (source.base != nullptr) return source.base->read_elements(source.stream, source.first, out, context);
  return read_stream(source.stream, source.first * element_size(source.dtype), out, context);
}

Result<ConstByteSpan> Snapshot::Impl::parameters_of(std::size_t stream_number, const container::ChunkEntry& entry,
                                                    const codec::Decoder& decoder) const {
  if (entry.parameters == container::kNoParameters) {
    BITSNAP_TRY(decoder.check_parameters({}));
    return ConstByteSpan();
  }
  const std::uint32_t set = index().encoding.streams[stream_number].parameters[entry.parameters];
  const ConstByteSpan parameters = index().parameters[set];
  const std::uint32_t mark = std::uint32_t{entry.codec} + 1;
  if (accepted_parameters_[set].load(std::memory_order_relaxed) != mark) {
    BITSNAP_TRY(decoder.check_parameters(parameters));
    accepted_parameters_[set].store(mark, std::memory_order_relaxed);
  }
  return parameters;
}

Result<void> Snapshot::Impl::decode_unnamed(std::size_t stream_number, std::uint64_t chunk, ByteSpan out,
                                            ReadContext& context, std::optional<ConstByteSpan> payload,
                                            bool& failed_in_input) const {
  const container::ChunkEntry& chunk_entry = entry(stream_number, chunk);
  const codec::Decoder* const decoder = codec::find_decoder(chunk_entry.codec);
  if (decoder == nullptr) {
    return fail(ErrorKind::unsupported,
                fmt::format("this version of bitsnap does not support codec {}", chunk_entry.codec));
  }

  codec::ChunkContext chunk_context;
  chunk_context.dtype = stream(stream_number).dtype;
  chunk_context.elements = out.size() / element_size(chunk_context.dtype);
  BITSNAP_ASSIGN(chunk_context.parameters, parameters_of(stream_number, chunk_entry, *decoder));

  std::array<Source, container::kInputsPerChunk> sources;
  std::array<codec::Input, container::kInputsPerChunk> inputs;
  std::size_t input_count = 0;
  for (; input_count < inputs.size() && chunk_entry.inputs[input_count] != container::kNoInput; ++input_count) {
    BITSNAP_ASSIGN(sources[input_count], find_source(stream_number, chunk, chunk_entry.inputs[input_count]));
    inputs[input_count].kind = sources[input_count].base ? codec::InputKind::base : codec::InputKind::peer;
    inputs[input_count].dtype = sources[input_count].dtype;
  }
  chunk_context.inputs = std::span<const codec::Input>(inputs.data(), input_count);
  if (!decoder->accepts(chunk_context.dtype, chunk_context.inputs)) {
    return fail(ErrorKind::corrupt, fmt::format("codec {} does not decode {} with these {} inputs", decoder->name(),
                                                dtype_name(chunk_context.dtype), input_count));
  }

  const std::size_t stored_bytes = chunk_entry.stored_bytes;
  const bool is_same = decoder->id() == codec::CodecId::same && stored_bytes == 0;
  const bool is_raw = decoder->id() == codec::CodecId::raw && stored_bytes == out.size() && !payload;
  if (is_same) {
    // The input is the chunk.
    BITSNAP_TRY(reader->read_payload(chunk_entry, {}));
    failed_in_input = true;
    BITSNAP_TRY(read_source(sources[0], out, context));
    failed_in_input = false;
  } else if (is_raw) {
    BITSNAP_TRY(reader->read_payload(chunk_entry, out));
  } else {
    for (std::size_t i = 0; i < input_count; ++i) {
      BITSNAP_ASSIGN(const ByteSpan bytes,
                     context.scratch().take(chunk_context.elements * element_size(inputs[i].dtype)));
      failed_in_input = true;
      BITSNAP_TRY(read_source(sources[i], bytes, context));
      failed_in_input = false;
      inputs[i].bytes = bytes;
    }
    if (!payload) {
      BITSNAP_ASSIGN(const ByteSpan bytes, context.scratch().take(stored_bytes));
      BITSNAP_TRY(reader->read_payload(chunk_entry, bytes));
      payload = bytes;
    }
    Result<void> decoded = decoder->decode(*payload, chunk_context, out, context.scratch());
    if (!decoded) return tl::unexpected(std::move(decoded).error().within(decoder->name()));
  }

  const std::uint64_t hash = is_raw ? chunk_entry.stored_hash : hash64(out);
  if (hash == chunk_entry.decoded_hash) return {};
  std::string message = fmt::format("its hash after decoding by {} is {:016x}, expected {:016x}", decoder->name(), hash,
                                    chunk_entry.decoded_hash);
  for (std::size_t i = 0; i < input_count; ++i) {
    if (!sources[i].base) continue;
    message += fmt::format("; its base {} may be the wrong file", sources[i].base->name());
    break;
  }
  return fail(ErrorKind::corrupt, std::move(message));
}

void Snapshot::Impl::set_decoded(std::shared_ptr<const restore::DecodedState> decoded) const {
  const std::lock_guard lock(decoded_mutex_);
  has_decoded_.store(decoded != nullptr, std::memory_order_relaxed);
  decoded_ = std::move(decoded);
}

std::shared_ptr<const restore::DecodedState> Snapshot::Impl::decoded() const {
  if (!has_decoded_.load(std::memory_order_relaxed)) return nullptr;
  const std::lock_guard lock(decoded_mutex_);
  return decoded_;
}

bool Snapshot::Impl::sample(std::size_t stream_number, std::uint64_t first, ByteSpan out) const {
  const std::shared_ptr<const restore::DecodedState> memory = decoded();
  return memory != nullptr && stream_number < index().streams.streams.size() &&
         memory->copy_part(stream_number, first * element_size(stream(stream_number).dtype), out);
}

bool Snapshot::Impl::copy_decoded(std::size_t stream_number, std::uint64_t chunk, ByteSpan out) const {
  const std::shared_ptr<const restore::DecodedState> memory = decoded();
  if (memory == nullptr || !memory->copy_chunk(stream_number, chunk, out)) return false;
  // Hashes the copy, because the memory may change.
  if (hash64(out) == entry(stream_number, chunk).decoded_hash) return true;
  memory->note_mismatch();
  return false;
}

Result<void> Snapshot::Impl::decode_chunk(std::size_t stream_number, std::uint64_t chunk, ByteSpan out,
                                          ReadContext& context, std::optional<ConstByteSpan> payload,
                                          bool is_part) const {
  if (!payload && copy_decoded(stream_number, chunk, out)) return {};
  bool failed_in_input = false;
  const bool is_step = context.is_nested();
  const container::ChunkEntry& chunk_entry = entry(stream_number, chunk);
  const ReadContext::Chunk wanted{
      .key = {opening, stream_number, chunk},
      .is_fork = chunk_entry.inputs[1] != container::kNoInput,
      .is_peer = !is_peer_.empty() && is_peer_[stream_number],
      .is_part = is_part,
      .is_reference = chunk_entry.codec == static_cast<std::uint16_t>(codec::CodecId::same),
      .cost = chunk_cost(stream_number, chunk),
      .allowance = work_allowance,
  };
  Result<void> decoded = context.decode_once(
      wanted, out, [&] { return decode_unnamed(stream_number, chunk, out, context, payload, failed_in_input); });
  if (decoded) return decoded;
  // Name only the requested chunk and the one that failed; those between would hide them.
  if (is_step && failed_in_input) return decoded;
  return tl::unexpected(std::move(decoded).error().within(place(stream_number, chunk)));
}

Result<void> Snapshot::Impl::read_pool(std::uint64_t chunk, std::size_t offset, ByteSpan out,
                                       ReadContext& context) const {
  restore::PoolCache::Bytes bytes = pool_cache_.find(chunk);
  if (bytes == nullptr) {
    const std::size_t pool = *index().streams.pool;
    auto decoded = std::make_shared<std::vector<std::byte>>(chunk_bytes(pool, chunk));
    BITSNAP_TRY(decode_chunk(pool, chunk, *decoded, context));
    bytes = std::move(decoded);
    pool_cache_.put(chunk, bytes);
  }
  std::memcpy(out.data(), bytes->data() + offset, out.size());
  return {};
}

Result<void> Snapshot::Impl::read_stream(std::size_t stream_number, std::uint64_t offset, ByteSpan out,
                                         ReadContext& context) const {
  const std::uint64_t whole_chunk = kChunkElements * element_size(stream(stream_number).dtype);
  while (!out.empty()) {
    const std::uint64_t chunk = offset / whole_chunk;
    const auto begin = static_cast<std::size_t>(offset % whole_chunk);
    const std::size_t size = chunk_bytes(stream_number, chunk);
    const std::size_t used = std::min(out.size(), size - begin);
    const ByteSpan piece = out.first(used);
    if (used == size) {
      BITSNAP_TRY(decode_chunk(stream_number, chunk, piece, context));
    } else if (stream_number == index().streams.pool) {
      BITSNAP_TRY(read_pool(chunk, begin, piece, context));
    } else {
      const Scratch::Frame frame(context.scratch());
      BITSNAP_ASSIGN(const ByteSpan decoded, context.scratch().take(size));
      BITSNAP_TRY(decode_chunk(stream_number, chunk, decoded, context, std::nullopt, true));
      std::memcpy(piece.data(), decoded.data() + begin, used);
    }
    offset += used;
    out = out.subspan(used);
  }
  return {};
}

Result<void> Snapshot::Impl::read_stream(std::size_t stream_number, std::uint64_t offset, ByteSpan out) const {
  const std::uint64_t whole_chunk = kChunkElements * element_size(stream(stream_number).dtype);
  ReadContext context(limits);
  while (!out.empty()) {
    const auto size = static_cast<std::size_t>(std::min<std::uint64_t>(out.size(), whole_chunk - offset % whole_chunk));
    context.restart();
    BITSNAP_TRY(read_stream(stream_number, offset, out.first(size), context));
    offset += size;
    out = out.subspan(size);
  }
  return {};
}

}  // namespace bitsnap
