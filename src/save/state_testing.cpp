// Files in memory, through the fake file system.
#include "save/state_testing.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <stdexcept>

#include "base/bytes.hpp"
#include "base/try.hpp"
#include "codec/trained_like_testing.hpp"
#include "os/file_system_fake.hpp"
#include "restore/open_snapshot.hpp"
#include "restore/state_builder_testing.hpp"

namespace bitsnap::save {
namespace {

// `write(file, executor)` returns a WriteSummary.
template <typename Write>
Result<WrittenFile> write_in_memory(unsigned threads, const Write& write) {
  os::FakeFileSystem files;
  BITSNAP_ASSIGN(const std::unique_ptr<os::WritableFile> file, files.create("/written"));
  const auto executor = exec::make_executor(threads > 0 ? threads : 2);
  WrittenFile written;
  BITSNAP_ASSIGN(written.summary, write(*file, *executor));
  BITSNAP_TRY(file->close());
  BITSNAP_ASSIGN(written.file, os::read_file(files, "/written", UINT64_MAX));
  return written;
}

}  // namespace

TensorSource source(std::string name, DType dtype, std::vector<std::uint64_t> shape, const Bytes& bytes) {
  return TensorSource::of(std::move(name), dtype, std::move(shape), bytes).value();
}

Bytes bf16_weights(std::size_t elements, unsigned seed) {
  Bytes bytes(elements * 2);
  codec::fill_trained_like(DType::bf16, bytes, seed);
  return bytes;
}

Bytes f32_masters(std::size_t elements, unsigned seed) {
  Bytes bytes(elements * 4);
  codec::fill_trained_like(DType::f32, bytes, seed);
  return bytes;
}

Bytes rounded(ConstByteSpan masters) {
  Bytes bytes(masters.size() / 2);
  for (std::size_t i = 0; 2 * i < bytes.size(); ++i) {
    auto bits = load_le<std::uint32_t>(masters.data() + 4 * i);
    bits += 0x7fff + (bits >> 16 & 1);
    store_le(bytes.data() + 2 * i, static_cast<std::uint16_t>(bits >> 16));
  }
  return bytes;
}

Bytes random_bytes(std::size_t size, unsigned seed) {
  std::mt19937 random(seed);
  Bytes bytes(size);
  for (auto& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

Bytes read_tensor(const Snapshot& snapshot, std::string_view name) {
  const auto tensor = snapshot.find(name);
  if (!tensor) return {};
  Bytes bytes(snapshot.tensors()[*tensor].size_bytes);
  const Snapshot::ReadRequest request{*tensor, bytes};
  const auto result = snapshot.read(std::span(&request, 1));
  EXPECT_TRUE(result.has_value()) << (result ? "" : result.error().message());
  return bytes;
}

std::vector<ChunkInfo> chunks_of(const Snapshot& snapshot, std::string_view name) {
  const std::size_t stream = *snapshot.stream_of(*snapshot.find(name));
  std::vector<ChunkInfo> chunks;
  for (std::uint64_t i = 0; i < snapshot.streams()[stream].chunk_count(); ++i) {
    chunks.push_back(snapshot.chunk_info(stream, i).value());
  }
  return chunks;
}

std::set<std::string> codecs_of(const Snapshot& snapshot, std::string_view name) {
  std::set<std::string> codecs;
  for (const ChunkInfo& chunk : chunks_of(snapshot, name)) codecs.emplace(chunk.codec);
  return codecs;
}

std::uint64_t stored_bytes(const Snapshot& snapshot, std::string_view name) {
  std::uint64_t bytes = 0;
  for (const ChunkInfo& chunk : chunks_of(snapshot, name)) bytes += chunk.stored_bytes;
  return bytes;
}

Result<WrittenFile> write_state(const State& state, const SaveOptions& options, BaseFinder* bases, StateTap* tap) {
  return write_in_memory(options.threads, [&](os::WritableFile& file, exec::Executor& executor) {
    return write_snapshot(state, options, bases, tap, file, executor);
  });
}

Result<WrittenFile> rewrite_by(const RewriteRules& rules, const Snapshot& source, const SaveOptions& options,
                               BaseFinder* bases) {
  return write_in_memory(options.threads, [&](os::WritableFile& file, exec::Executor& executor) {
    return rewrite_snapshot(source, rules, bases, options, file, executor);
  });
}

Result<WrittenFile> rewrite(const Snapshot& source, const std::vector<SnapshotId>& dropped, const SaveOptions& options,
                            BaseFinder* bases) {
  return rewrite_by({.dropped = dropped}, source, options, bases);
}

void expect_same_bytes_for_any_threads(const State& state, SaveOptions options,
                                       const std::shared_ptr<const Base>& base) {
  std::optional<Bytes> first;
  for (const unsigned threads : {1U, 2U, 5U}) {
    options.threads = threads;
    std::optional<SingleBase> bases;
    if (base != nullptr) bases.emplace(base);
    Bytes file = write_state(state, options, bases ? &*bases : nullptr).value().file;
    if (!first) first = file;
    EXPECT_EQ(file, *first) << threads << " threads";
  }
}

std::vector<SnapshotId> ids_of(std::span<const BaseReference> bases) {
  std::vector<SnapshotId> ids;
  for (const BaseReference& base : bases) ids.push_back(base.id);
  return ids;
}

void change(Bytes& bytes, std::size_t stride, unsigned by) {
  for (std::size_t i = 0; i < bytes.size(); i += stride) {
    bytes[i] = static_cast<std::byte>(std::to_integer<unsigned>(bytes[i]) + by);
  }
}

std::shared_ptr<const Snapshot> open_file(const std::string& name, Bytes file,
                                          std::shared_ptr<const BaseProvider> bases,
                                          const std::shared_ptr<container::ReadLog>& log) {
  OpenOptions options;
  options.bases = bases ? std::move(bases) : std::make_shared<const restore::MapBases>();
  auto opened = restore::open_snapshot(std::make_unique<container::MemoryFile>(name, std::move(file), log), options,
                                       os::real_file_system());
  if (!opened) throw std::logic_error(opened.error().message());
  if (log != nullptr) log->clear();
  return std::move(*opened);
}

const Snapshot& Chain::save(const State& state, const SaveOptions& options) {
  std::optional<SingleBase> base;
  if (!snapshots_.empty()) base.emplace(snapshots_.back());
  auto written = write_state(state, options, base ? &*base : nullptr);
  if (!written) throw std::logic_error(written.error().message());
  summary_ = written->summary;
  const auto bases = std::make_shared<restore::MapBases>();
  for (const auto& snapshot : snapshots_) bases->add(snapshot);
  snapshots_.push_back(open_file(std::to_string(snapshots_.size()) + ".bsnap", written->file, bases));
  files_.push_back(std::move(written->file));
  return *snapshots_.back();
}

std::shared_ptr<const BaseProvider> Chain::bases(const std::vector<std::size_t>& numbers) const {
  auto bases = std::make_shared<restore::MapBases>();
  for (const std::size_t number : numbers) bases->add(snapshots_.at(number));
  return bases;
}

Result<void> MemoryBase::begin(std::span<const StreamInfo> streams) {
  for (const StreamInfo& stream : streams) bytes_.emplace_back(stream.elements * element_size(stream.dtype));
  return {};
}

void MemoryBase::take(std::size_t stream, std::uint64_t offset_bytes, ConstByteSpan bytes) noexcept {
  std::ranges::copy(bytes, bytes_[stream].begin() + static_cast<std::ptrdiff_t>(offset_bytes));
  ++chunks_taken_;
}

Result<void> MemoryBase::read_elements(std::size_t stream, std::uint64_t first, std::span<std::byte> out,
                                       ReadContext& /*context*/) const {
  std::memcpy(out.data(), bytes_.at(stream).data() + first * element_size(streams()[stream].dtype), out.size());
  ++reads_;
  return {};
}

}  // namespace bitsnap::save
