// Opens snapshots, and answers everything that needs no decoding.
#include <algorithm>
#include <atomic>
#include <utility>

#include <fmt/format.h>

#include "base/no_throw.hpp"
#include "base/try.hpp"
#include "codec/registry.hpp"
#include "container/chunk_table.hpp"
#include "os/memory_files.hpp"
#include "restore/open_snapshot.hpp"
#include "restore/snapshot_impl.hpp"

namespace bitsnap {
namespace {

std::uint64_t next_opening() noexcept {
  static std::atomic<std::uint64_t> openings = 0;
  return ++openings;
}

std::vector<bool> find_peers(const container::Index& index) {
  std::vector<bool> is_peer;
  for (const container::StreamEncoding& stream : index.encoding.streams) {
    for (const container::StreamInput& input : stream.inputs) {
      if (input.base) continue;
      is_peer.resize(index.encoding.streams.size());
      is_peer[static_cast<std::size_t>(input.stream)] = true;
    }
  }
  return is_peer;
}

}  // namespace

Snapshot::Impl::Impl(std::unique_ptr<container::FileReader> file_reader, const DecodeLimits& decode_limits)
    : opening(next_opening()),
      reader(std::move(file_reader)),
      limits(decode_limits),
      is_peer_(find_peers(index())),
      bases_(index().encoding.bases.size()),
      accepted_parameters_(index().parameters.size()) {
  std::uint64_t cost = 0;
  for (std::size_t number = 0; number < index().streams.streams.size(); ++number) {
    for (std::uint64_t chunk = 0; chunk < stream(number).chunk_count(); ++chunk) cost += chunk_cost(number, chunk);
  }
  work_allowance = restore::WorkBudget::allowance_of(cost, reader->file_bytes());
}

Snapshot::Impl::TensorPlace Snapshot::Impl::tensor_place(std::size_t tensor) const noexcept {
  const std::size_t holder = index().content.tensors[tensor].alias_of.value_or(tensor);
  if (const auto& offset = index().content.pool_offsets[holder]) return {*index().streams.pool, *offset};
  return {*index().streams.stream_of[holder], 0};
}

const restore::ChunkGroups& Snapshot::Impl::groups() const {
  std::call_once(groups_once_, [this] { groups_.emplace(restore::group_chunks(index())); });
  return *groups_;
}

// Chunks of one batch depend on the same chunks of a base if one of them has several inputs.
ReadContext::Expected Snapshot::Impl::expected_again(std::size_t batch) const {
  const auto [begin, end] = groups().batch(batch);
  if (end - begin == 1) return ReadContext::Expected::nothing;
  for (std::size_t place = begin; place < end; ++place) {
    if (index().chunks[groups().chunk_at(place)].inputs[1] != container::kNoInput) return ReadContext::Expected::all;
  }
  return ReadContext::Expected::peers;
}

Result<std::shared_ptr<const Base>> Snapshot::Impl::base(std::size_t number) const {
  const BaseReference& wanted = index().encoding.bases[number];
  // The owner holds the bases; holding them here, too, would leak those that depend on each other in a circle.
  if (owner != nullptr) return owner->find_for(wanted, reader->footer());
  {
    const std::lock_guard lock(bases_mutex_);
    if (bases_[number]) return bases_[number];
  }
  BITSNAP_ASSIGN(std::shared_ptr<const Base> found,
                 directory ? directory->find_for(wanted, reader->footer()) : provider->find(wanted.id));
  if (found == nullptr || found->id() != wanted.id) {
    return fail(ErrorKind::internal, fmt::format("requested base {}, but the provider returned {}", wanted.id.to_hex(),
                                                 found ? found->id().to_hex() : "none"));
  }
  const std::lock_guard lock(bases_mutex_);
  bases_[number] = found;
  return found;
}

namespace restore {

Result<std::shared_ptr<const Snapshot>> open_for(std::unique_ptr<os::RandomAccessFile> file, const DecodeLimits& limits,
                                                 const DirectoryBases& owner) {
  BITSNAP_ASSIGN(std::unique_ptr<container::FileReader> reader, container::FileReader::open(std::move(file), limits));
  auto impl = std::make_unique<Snapshot::Impl>(std::move(reader), limits);
  impl->owner = &owner;
  return std::make_shared<const Snapshot>(std::move(impl));
}

Result<std::shared_ptr<const Snapshot>> open_snapshot(std::unique_ptr<os::RandomAccessFile> file,
                                                      const OpenOptions& options, os::FileSystem& file_system) {
  return no_throw("snapshot", [&]() -> Result<std::shared_ptr<const Snapshot>> {
    BITSNAP_ASSIGN(std::unique_ptr<container::FileReader> reader,
                   container::FileReader::open(std::move(file), options.limits));
    const std::string folder = os::parent_directory(reader->path());
    auto impl = std::make_unique<Snapshot::Impl>(std::move(reader), options.limits);
    impl->provider = options.bases;
    if (impl->provider == nullptr) {
      impl->directory = std::make_shared<DirectoryBases>(file_system, options.base_paths, folder, options.limits);
    }
    return std::make_shared<const Snapshot>(std::move(impl));
  });
}

void attach_decoded(const Snapshot& snapshot, std::shared_ptr<const DecodedState> decoded) {
  Snapshot::Impl::of(snapshot).set_decoded(std::move(decoded));
}

}  // namespace restore

Result<std::shared_ptr<const Snapshot>> Snapshot::open(const std::string& path, const OpenOptions& options) {
  return no_throw("snapshot", [&]() -> Result<std::shared_ptr<const Snapshot>> {
    BITSNAP_ASSIGN(std::unique_ptr<os::RandomAccessFile> file, os::real_file_system().open(path));
    return restore::open_snapshot(std::move(file), options, os::real_file_system());
  });
}

Result<std::shared_ptr<const Snapshot>> Snapshot::open_bytes(std::span<const std::byte> bytes,
                                                             std::shared_ptr<const void> owner,
                                                             const OpenOptions& options, std::string name) {
  return no_throw("snapshot", [&]() -> Result<std::shared_ptr<const Snapshot>> {
    OpenOptions complete = options;
    // Memory has no directory that could hold bases.
    if (complete.bases == nullptr) complete.bases = bases_of(nullptr);
    return restore::open_snapshot(std::make_unique<os::MemoryReader>(std::move(name), bytes, std::move(owner)),
                                  complete, os::real_file_system());
  });
}

Result<SnapshotId> snapshot_id(const std::string& path) {
  return no_throw("snapshot", [&]() -> Result<SnapshotId> {
    BITSNAP_ASSIGN(const std::unique_ptr<os::RandomAccessFile> file, os::real_file_system().open(path));
    BITSNAP_ASSIGN(const container::Footer footer, container::read_footer(*file));
    return footer.id;
  });
}

Snapshot::Snapshot(std::unique_ptr<Impl> impl) noexcept : impl_(std::move(impl)) {}
Snapshot::~Snapshot() = default;

SnapshotId Snapshot::id() const noexcept { return impl_->index().id; }
const std::string& Snapshot::name() const noexcept { return impl_->reader->path(); }
std::span<const TensorInfo> Snapshot::tensors() const noexcept { return impl_->index().content.tensors; }
std::span<const StreamInfo> Snapshot::streams() const noexcept { return impl_->index().streams.streams; }
std::uint64_t Snapshot::file_bytes() const noexcept { return impl_->reader->file_bytes(); }
std::span<const BaseReference> Snapshot::bases() const noexcept { return impl_->index().encoding.bases; }
bool Snapshot::has_tree() const noexcept { return impl_->index().content.tree.has_value(); }

Result<std::optional<Value>> Snapshot::tree() const { return impl_->reader->tree(impl_->limits); }

const std::string& Snapshot::writer() const noexcept { return impl_->index().encoding.writer; }
const std::string& Snapshot::policy() const noexcept { return impl_->index().encoding.policy; }

const std::string& Snapshot::objective() const noexcept { return impl_->index().encoding.objective; }

const std::vector<std::pair<std::string, std::string>>& Snapshot::metadata() const noexcept {
  return impl_->index().content.metadata;
}

const std::optional<std::string>& Snapshot::safetensors_header() const noexcept {
  return impl_->index().safetensors_header;
}

std::optional<std::size_t> Snapshot::find(std::string_view tensor_name) const noexcept {
  const container::Content& content = impl_->index().content;
  return content.names.find(content.tensors, tensor_name);
}

std::optional<std::size_t> Snapshot::stream_of(std::size_t tensor) const noexcept {
  if (tensor >= tensors().size()) return std::nullopt;
  return impl_->index().streams.stream_of[tensors()[tensor].alias_of.value_or(tensor)];
}

const std::string& Snapshot::reason(std::size_t stream) const noexcept {
  static const std::string kNone;
  const std::vector<container::StreamEncoding>& streams = impl_->index().encoding.streams;
  return stream < streams.size() ? streams[stream].reason : kNone;
}

const std::optional<LossReport>& Snapshot::quantizer(std::size_t stream) const noexcept {
  static const std::optional<LossReport> kNone;
  const std::vector<container::StreamEncoding>& streams = impl_->index().encoding.streams;
  return stream < streams.size() ? streams[stream].quantizer : kNone;
}

Result<ChunkInfo> Snapshot::chunk_info(std::size_t stream, std::uint64_t chunk) const {
  return no_throw("chunk", [&]() -> Result<ChunkInfo> {
    if (!impl_->has_chunk(stream, chunk)) {
      return fail(ErrorKind::invalid_argument, fmt::format("{}: no chunk {} of stream {}", name(), chunk, stream));
    }
    const container::ChunkEntry& entry = impl_->entry(stream, chunk);
    const codec::Decoder* const decoder = codec::find_decoder(entry.codec);
    ChunkInfo info;
    info.codec_id = entry.codec;
    info.codec = decoder != nullptr ? decoder->name() : "unknown";
    info.offset = entry.offset;
    info.stored_bytes = entry.stored_bytes;
    info.raw_bytes = static_cast<std::uint32_t>(impl_->chunk_bytes(stream, chunk));
    info.depth = entry.depth;
    info.stored_hash = entry.stored_hash;
    info.decoded_hash = entry.decoded_hash;
    info.uses_base = impl_->uses_base(stream, entry);
    return info;
  });
}

namespace {

// A snapshot and the base that keeps it alive.
struct Place {
  const Snapshot::Impl* impl = nullptr;
  std::shared_ptr<const Base> base;  // nullptr: the snapshot itself
};

}  // namespace

Result<ChunkHolder> Snapshot::holder(std::size_t stream, std::uint64_t chunk) const {
  return no_throw("chunk", [&]() -> Result<ChunkHolder> {
    if (!impl_->has_chunk(stream, chunk)) {
      return fail(ErrorKind::invalid_argument, fmt::format("{}: no chunk {} of stream {}", name(), chunk, stream));
    }
    const std::uint32_t own_depth = impl_->entry(stream, chunk).depth;
    const std::uint64_t decoded_hash = impl_->entry(stream, chunk).decoded_hash;
    Place at{impl_.get(), nullptr};
    for (std::uint32_t step = 0; step <= impl_->limits.chain_depth; ++step) {
      const container::ChunkEntry& entry = at.impl->entry(stream, chunk);
      ChunkHolder here{at.base, stream, chunk * kChunkElements, entry.depth, own_depth, decoded_hash};
      if (entry.codec != static_cast<std::uint16_t>(codec::CodecId::same) || entry.inputs[0] == container::kNoInput) {
        return here;
      }
      const StreamInfo& info = at.impl->stream(stream);
      const container::StreamInput& input = at.impl->index().encoding.streams[stream].inputs[entry.inputs[0]];
      const auto next_stream = static_cast<std::size_t>(input.stream);
      const std::uint64_t first = input.element + chunk * kChunkElements;
      std::shared_ptr<const Base> base;
      if (input.base) {
        Result<std::shared_ptr<const Base>> found = at.impl->base(*input.base);
        if (!found) return tl::unexpected(std::move(found).error().within(at.impl->place(stream, chunk)));
        base = std::move(*found);
      }
      const std::span<const StreamInfo> streams = base ? base->streams() : at.impl->index().streams.streams;
      // Only a reference to one whole chunk can be followed; otherwise this chunk is the holder.
      if (next_stream >= streams.size() || streams[next_stream].dtype != info.dtype || first % kChunkElements != 0 ||
          first >= streams[next_stream].elements ||
          container::chunk_elements(streams[next_stream], first / kChunkElements) !=
              container::chunk_elements(info, chunk)) {
        return here;
      }
      stream = next_stream;
      chunk = first / kChunkElements;
      if (!base) continue;
      const auto* const snapshot = dynamic_cast<const Snapshot*>(base.get());
      if (snapshot == nullptr) {
        BITSNAP_ASSIGN(ChunkHolder holder, base->holder(stream, chunk));
        if (holder.base == nullptr) holder.base = std::move(base);
        holder.own_depth = own_depth;
        holder.decoded_hash = decoded_hash;
        return holder;
      }
      at = Place{snapshot->impl_.get(), std::move(base)};
    }
    return fail(ErrorKind::corrupt, fmt::format("{}: a chain of references to unchanged data is longer than {} links",
                                                at.impl->place(stream, chunk), impl_->limits.chain_depth));
  });
}

}  // namespace bitsnap
