// Reads a range of a tensor, whole tensors or boxes of them in parallel, or everything as a stream.
#include <algorithm>
#include <cstring>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/no_throw.hpp"
#include "base/quote_name.hpp"
#include "base/try.hpp"
#include "restore/box_copy.hpp"
#include "restore/needed_payloads.hpp"
#include "restore/run_control.hpp"
#include "restore/snapshot_impl.hpp"

namespace bitsnap {
namespace {

// What is wanted of one tensor in one chunk: bytes that are adjacent in the chunk and in memory, or a box.
struct Piece {
  std::size_t stream = 0;
  std::uint64_t chunk = 0;
  std::size_t offset = 0;  // within the chunk: of the bytes, or of the part of the tensor that is in the chunk
  std::size_t size = 0;
  std::byte* out = nullptr;  // of the bytes, unless the call streams them
  const restore::BoxCopy* box = nullptr;
  std::uint64_t tensor_byte = 0;  // of a box: the first byte of the tensor that is in the chunk
};

Result<void> check_tensor(const Snapshot& snapshot, std::size_t tensor) {
  if (tensor < snapshot.tensors().size()) return {};
  return fail(ErrorKind::invalid_argument, fmt::format("{}: tensor must be below {}, the number of tensors, got {}",
                                                       snapshot.name(), snapshot.tensors().size(), tensor));
}

// Appends a tensor's pieces in order; `out` is nullptr or where its first byte goes.
void append_pieces(const Snapshot::Impl& impl, std::size_t tensor, std::byte* out, std::vector<Piece>& pieces) {
  std::uint64_t left = impl.index().content.tensors[tensor].size_bytes;
  if (left == 0) return;
  const auto [stream, begin] = impl.tensor_place(tensor);
  const std::uint64_t chunk_bytes = kChunkElements * element_size(impl.stream(stream).dtype);
  for (std::uint64_t at = begin; left > 0;) {
    const std::uint64_t offset = at % chunk_bytes;
    const std::uint64_t size = std::min(left, chunk_bytes - offset);
    pieces.push_back(Piece{.stream = stream,
                           .chunk = at / chunk_bytes,
                           .offset = static_cast<std::size_t>(offset),
                           .size = static_cast<std::size_t>(size),
                           .out = out});
    if (out != nullptr) out += size;
    at += size;
    left -= size;
  }
}

// Appends the pieces of a box.
void append_box(const Snapshot::Impl& impl, std::size_t tensor, const restore::BoxCopy& box,
                std::vector<Piece>& pieces) {
  const std::uint64_t tensor_bytes = impl.index().content.tensors[tensor].size_bytes;
  const auto [stream, begin] = impl.tensor_place(tensor);
  const std::uint64_t chunk_bytes = kChunkElements * element_size(impl.stream(stream).dtype);
  for (std::optional<std::uint64_t> at = box.next(0); at;) {
    const std::uint64_t chunk = (begin + *at) / chunk_bytes;
    const std::uint64_t first = std::max(begin, chunk * chunk_bytes) - begin;  // bytes of the tensor in the chunk
    const std::uint64_t end = std::min((chunk + 1) * chunk_bytes - begin, tensor_bytes);
    Piece piece{.stream = stream, .chunk = chunk};
    const auto in_chunk = [&](std::uint64_t byte) {
      return static_cast<std::size_t>(begin + byte - chunk * chunk_bytes);
    };
    if (const auto run = box.only_run(first, end)) {
      piece.offset = in_chunk(run->begin);
      piece.size = static_cast<std::size_t>(run->size);
      piece.out = run->out;
    } else {
      piece.offset = in_chunk(first);
      piece.size = static_cast<std::size_t>(end - first);
      piece.box = &box;
      piece.tensor_byte = first;
    }
    pieces.push_back(piece);
    at = end < tensor_bytes ? box.next(end) : std::nullopt;
  }
}

// Decodes a chunk once for all its pieces. Returns the number of bytes that were wanted.
Result<std::uint64_t> read_pieces(const Snapshot::Impl& impl, std::span<const Piece> pieces, ReadContext& context) {
  const std::size_t stream = pieces.front().stream;
  const std::uint64_t chunk = pieces.front().chunk;
  const std::size_t size = impl.chunk_bytes(stream, chunk);
  const auto is_whole = [size](const Piece& piece) { return piece.box == nullptr && piece.size == size; };
  const auto whole = std::ranges::find_if(pieces, is_whole);
  ByteSpan decoded;
  if (whole != pieces.end()) {
    decoded = ByteSpan(whole->out, size);
  } else {
    BITSNAP_ASSIGN(decoded, context.scratch().take(size));
  }
  BITSNAP_TRY(impl.decode_chunk(stream, chunk, decoded, context));
  std::uint64_t bytes = 0;
  for (const Piece& piece : pieces) {
    const ByteSpan part = decoded.subspan(piece.offset, piece.size);
    if (piece.box != nullptr) {
      bytes += piece.box->copy(piece.tensor_byte, part);
      continue;
    }
    if (piece.out != decoded.data()) std::memcpy(piece.out, part.data(), part.size());
    bytes += part.size();
  }
  return bytes;
}

restore::NeededPayloads payloads_of(const Snapshot::Impl& impl, std::span<const Piece> pieces) {
  restore::NeededPayloads needed;
  for (const Piece& piece : pieces) {
    const std::uint64_t number = impl.index().streams.first_chunk[piece.stream] + piece.chunk;
    needed.add(impl, static_cast<std::size_t>(number), true);
  }
  return needed;
}

// Reads all pieces, in parallel over chunks, each of which is decoded once. `total_bytes` is the sum for the progress.
Result<void> read_all(const Snapshot::Impl& impl, std::vector<Piece> pieces, std::uint64_t total_bytes,
                      const RunOptions& options) {
  // In the order of the batches, so that chunks find their inputs in the cache.
  const restore::ChunkGroups& groups = impl.groups();
  const auto place = [&](const Piece& piece) {
    return groups.place_of(static_cast<std::size_t>(impl.index().streams.first_chunk[piece.stream] + piece.chunk));
  };
  std::ranges::sort(pieces, {}, place);
  std::vector<std::size_t> batches;  // where each begins, and the end
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    if (i == 0 || groups.batch_at(place(pieces[i])) != groups.batch_at(place(pieces[i - 1]))) batches.push_back(i);
  }
  batches.push_back(pieces.size());

  const restore::ReadsAhead ahead(payloads_of(impl, pieces));
  restore::RunControl control(options, impl.limits, total_bytes);
  const auto work = [&](std::size_t item, std::size_t slot) -> Result<void> {
    auto left = std::span<const Piece>(pieces).subspan(batches[item], batches[item + 1] - batches[item]);
    const ReadContext::Expected expected = impl.expected_again(groups.batch_at(place(left.front())));
    control.context(slot).forget();
    while (!left.empty()) {
      BITSNAP_TRY(control.check_cancelled());
      std::size_t count = 1;
      while (count < left.size() && place(left[count]) == place(left.front())) ++count;
      ReadContext& context = control.context(slot);
      context.expect_again(count < left.size() ? expected : ReadContext::Expected::nothing);
      BITSNAP_ASSIGN(const std::uint64_t bytes, read_pieces(impl, left.first(count), context));
      control.add(bytes);
      left = left.subspan(count);
    }
    return {};
  };
  return control.executor().run(batches.size() - 1, control.slots(), work, &control.cancel());
}

// The bytes of one element; of an opaque dtype, if they are whole.
Result<std::uint64_t> check_box(const Snapshot& snapshot, const Snapshot::BoxRequest& request) {
  BITSNAP_TRY(check_tensor(snapshot, request.tensor));
  const TensorInfo& info = snapshot.tensors()[request.tensor];
  const auto wrong = [&](ErrorKind kind, const std::string& what) {
    return fail(kind, fmt::format("{}: tensor {}: {}", snapshot.name(), quote_name(info.name), what));
  };
  const tensor::Box box{request.offset, request.extent};
  if (!tensor::lies_in(box, info.shape)) {
    return wrong(
        ErrorKind::invalid_argument,
        fmt::format("the box of extent [{}] at [{}] does not lie in the shape [{}]", fmt::join(request.extent, ", "),
                    fmt::join(request.offset, ", "), fmt::join(info.shape, ", ")));
  }
  if (request.strides.size() != info.shape.size()) {
    return wrong(ErrorKind::invalid_argument, fmt::format("expected {} strides, one for each dimension, got {}",
                                                          info.shape.size(), request.strides.size()));
  }
  const std::uint64_t elements = tensor::volume(info.shape).value_or(0);
  if (elements == 0) return 0;
  if (info.size_bytes % elements != 0) {
    return wrong(ErrorKind::unsupported, fmt::format("its elements of type {} are no whole bytes", info.dtype_name));
  }
  return info.size_bytes / elements;
}

// Returns where element `first` begins in the stream, in bytes.
Result<std::uint64_t> check_elements(const Snapshot& snapshot, std::size_t stream, std::uint64_t first,
                                     std::size_t size_bytes) {
  const std::span<const StreamInfo> streams = snapshot.streams();
  if (stream >= streams.size()) {
    return fail(ErrorKind::invalid_argument, fmt::format("{}: stream must be below {}, the number of streams, got {}",
                                                         snapshot.name(), streams.size(), stream));
  }
  const StreamInfo& info = streams[stream];
  const std::size_t element_bytes = element_size(info.dtype);
  const std::uint64_t count = size_bytes / element_bytes;
  if (size_bytes % element_bytes != 0 || first > info.elements || count > info.elements - first) {
    return fail(
        ErrorKind::invalid_argument,
        fmt::format(
            "{}: {} bytes at element {} are not whole elements within stream {}, which has {} elements of {} bytes",
            snapshot.name(), size_bytes, first, stream, info.elements, element_bytes));
  }
  return first * element_bytes;
}

}  // namespace

Result<void> Snapshot::read_elements(std::size_t stream, std::uint64_t first, std::span<std::byte> out,
                                     ReadContext& context) const {
  return no_throw("read", [&]() -> Result<void> {
    BITSNAP_ASSIGN(const std::uint64_t begin, check_elements(*this, stream, first, out.size()));
    return impl_->read_stream(stream, begin, out, context);
  });
}

Result<void> Snapshot::read_elements(std::size_t stream, std::uint64_t first, std::span<std::byte> out) const {
  return no_throw("read", [&]() -> Result<void> {
    BITSNAP_ASSIGN(const std::uint64_t begin, check_elements(*this, stream, first, out.size()));
    return impl_->read_stream(stream, begin, out);
  });
}

bool Snapshot::sample_elements(std::size_t stream, std::uint64_t first, std::span<std::byte> out) const noexcept {
  return impl_->sample(stream, first, out);
}

Result<void> Snapshot::read_bytes(std::size_t tensor, std::uint64_t offset, std::span<std::byte> out) const {
  return no_throw("read", [&]() -> Result<void> {
    BITSNAP_TRY(check_tensor(*this, tensor));
    const TensorInfo& info = tensors()[tensor];
    if (offset > info.size_bytes || out.size() > info.size_bytes - offset) {
      return fail(ErrorKind::invalid_argument,
                  fmt::format("{}: tensor {}: {} bytes at offset {} exceed its {} bytes", name(), quote_name(info.name),
                              out.size(), offset, info.size_bytes));
    }
    if (out.empty()) return {};
    const auto [stream, begin] = impl_->tensor_place(tensor);
    return impl_->read_stream(stream, begin + offset, out);
  });
}

Result<void> Snapshot::read(std::span<const ReadRequest> requests, const RunOptions& options) const {
  return no_throw("read", [&]() -> Result<void> {
    std::vector<Piece> pieces;
    std::uint64_t total = 0;
    for (const ReadRequest& request : requests) {
      BITSNAP_TRY(check_tensor(*this, request.tensor));
      const TensorInfo& info = tensors()[request.tensor];
      if (request.out.size() != info.size_bytes) {
        return fail(ErrorKind::invalid_argument,
                    fmt::format("{}: tensor {} has {} bytes, the buffer for it has {}", name(), quote_name(info.name),
                                info.size_bytes, request.out.size()));
      }
      append_pieces(*impl_, request.tensor, request.out.data(), pieces);
      total += info.size_bytes;
    }
    return read_all(*impl_, std::move(pieces), total, options);
  });
}

Result<void> Snapshot::read_boxes(std::span<const BoxRequest> requests, const RunOptions& options) const {
  return no_throw("read", [&]() -> Result<void> {
    std::vector<restore::BoxCopy> boxes;
    boxes.reserve(requests.size());  // pieces point to them
    std::vector<Piece> pieces;
    std::uint64_t total = 0;
    for (const BoxRequest& request : requests) {
      BITSNAP_ASSIGN(const std::uint64_t item_bytes, check_box(*this, request));
      const std::uint64_t bytes = item_bytes * tensor::volume(request.extent).value_or(0);
      if (bytes == 0) continue;
      total += bytes;
      boxes.emplace_back(tensors()[request.tensor].shape, tensor::Box{request.offset, request.extent}, item_bytes,
                         request.out, request.strides);
      append_box(*impl_, request.tensor, boxes.back(), pieces);
    }
    return read_all(*impl_, std::move(pieces), total, options);
  });
}

Result<void> Snapshot::stream_all(const Sink& sink, const RunOptions& options) const {
  return no_throw("read", [&] {
    std::vector<std::size_t> all(tensors().size());
    std::iota(all.begin(), all.end(), std::size_t{0});
    return stream_tensors(all, sink, options);
  });
}

Result<void> Snapshot::stream_tensors(std::span<const std::size_t> numbers, const Sink& sink,
                                      const RunOptions& options) const {
  return no_throw("read", [&]() -> Result<void> {
    std::vector<Piece> pieces;
    std::uint64_t total = 0;
    for (const std::size_t tensor : numbers) {
      BITSNAP_TRY(check_tensor(*this, tensor));
      append_pieces(*impl_, tensor, nullptr, pieces);
      total += tensors()[tensor].size_bytes;
    }
    const restore::ReadsAhead ahead(payloads_of(*impl_, pieces));
    restore::RunControl control(options, impl_->limits, total);
    std::vector<ByteSpan> decoded(control.slots());  // in the slot's working memory
    const auto work = [&](std::size_t item, std::size_t slot) -> Result<void> {
      const Piece& piece = pieces[item];
      ReadContext& context = control.context(slot);
      BITSNAP_ASSIGN(decoded[slot], context.scratch().take(piece.size));
      const std::uint64_t chunk_bytes = kChunkElements * element_size(impl_->stream(piece.stream).dtype);
      return impl_->read_stream(piece.stream, piece.chunk * chunk_bytes + piece.offset, decoded[slot], context);
    };
    const auto commit = [&](std::size_t, std::size_t slot) -> Result<void> {
      BITSNAP_TRY(sink(decoded[slot]));
      control.add(decoded[slot].size());
      return {};
    };
    return control.executor().run_ordered(pieces.size(), control.slots(), work, commit, &control.cancel());
  });
}

}  // namespace bitsnap
