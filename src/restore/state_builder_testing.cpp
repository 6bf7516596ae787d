// Snapshot files for tests. A builder that is used wrongly throws: that is a mistake in the test.
#include "restore/state_builder_testing.hpp"

#include <algorithm>
#include <array>
#include <numeric>
#include <stdexcept>
#include <utility>

#include "base/hash.hpp"
#include "base/scratch.hpp"
#include "base/try.hpp"
#include "codec/registry_encode.hpp"
#include "container/chunk_table.hpp"

namespace bitsnap::restore {
namespace {

template <typename T>
T must(Result<T> result) {
  if (!result) throw std::logic_error(result.error().message());
  return std::move(*result);
}

}  // namespace

std::size_t StateBuilder::add(const std::string& name, DType dtype, Bytes data, Coding coding) {
  TensorInfo info;
  info.name = name;
  info.dtype = dtype;
  info.dtype_name = dtype == DType::opaque ? "F4" : dtype_name(dtype);
  info.shape = {data.size() / element_size(dtype)};
  info.size_bytes = data.size();
  index_.content.tensors.push_back(std::move(info));
  index_.content.pool_offsets.emplace_back();
  data_.push_back(std::move(data));
  codings_.push_back(std::move(coding));
  return data_.size() - 1;
}

std::size_t StateBuilder::add_pooled(const std::string& name, DType dtype, const Bytes& data) {
  const std::size_t tensor = add(name, dtype, data);
  index_.content.pool_offsets[tensor] = pool_.size();
  pool_.insert(pool_.end(), data.begin(), data.end());
  index_.content.pool_bytes = pool_.size();
  return tensor;
}

std::size_t StateBuilder::add_alias(const std::string& name, std::size_t of) {
  const std::size_t tensor = add(name, index_.content.tensors[of].dtype, data_[of]);
  index_.content.tensors[tensor].alias_of = of;
  return tensor;
}

std::uint32_t StateBuilder::add_base(const StateBuilder& base, const std::string& name) {
  const std::uint32_t number = add_base(base.id(), name);
  bases_[number] = &base;
  return number;
}

std::uint32_t StateBuilder::add_base(const SnapshotId& id, const std::string& name) {
  index_.encoding.bases.push_back(BaseReference{id, name});
  bases_.push_back(nullptr);
  return static_cast<std::uint32_t>(bases_.size() - 1);
}

const Bytes& StateBuilder::stream_bytes(std::size_t stream) const {
  const container::StreamTable streams = must(container::derive_streams(index_.content));
  const std::optional<std::size_t> tensor = streams.streams.at(stream).tensor;
  return tensor ? data_[*tensor] : pool_;
}

const Coding& StateBuilder::stream_coding(std::size_t stream) const {
  const std::optional<std::size_t> tensor = index_.streams.streams[stream].tensor;
  return tensor ? codings_[*tensor] : pool_coding_;
}

SnapshotId StateBuilder::id() const {
  container::RawFile file;
  file.content = must(container::serialize_content(index_.content));
  const container::StreamTable streams = must(container::derive_streams(index_.content));
  for (const StreamInfo& info : streams.streams) {
    const ConstByteSpan bytes = info.tensor ? data_[*info.tensor] : pool_;
    const std::size_t whole = kChunkElements * element_size(info.dtype);
    for (std::size_t at = 0; at < bytes.size(); at += whole) {
      file.add_chunk(0, {}, bytes.subspan(at, std::min(whole, bytes.size() - at)));
    }
  }
  return file.id();
}

void StateBuilder::encode(std::size_t stream, std::uint64_t chunk, const Coding& coding, container::ChunkEntry& entry,
                          Bytes& payloads) {
  const StreamInfo& info = index_.streams.streams[stream];
  const std::size_t element_bytes = element_size(info.dtype);
  const std::uint64_t first = chunk * kChunkElements;
  const auto elements = static_cast<std::size_t>(container::chunk_elements(info, chunk));
  const ConstByteSpan data =
      ConstByteSpan(stream_bytes(stream)).subspan(first * element_bytes, elements * element_bytes);

  std::vector<codec::Input> inputs;
  for (std::size_t i = 0; i < coding.inputs.size(); ++i) {
    const container::StreamInput& from = coding.inputs[i];
    entry.inputs[i] = static_cast<std::uint8_t>(i);
    const StateBuilder* const source = from.base ? bases_[*from.base] : this;
    if (source == nullptr) continue;
    const StreamInfo& source_info = source->index_.streams.streams.at(from.stream);
    const std::size_t size = element_size(source_info.dtype);
    const std::uint64_t begin = from.element + first;
    inputs.push_back({from.base ? codec::InputKind::base : codec::InputKind::peer, source_info.dtype,
                      ConstByteSpan(source->stream_bytes(from.stream)).subspan(begin * size, elements * size)});
    for (std::uint64_t touched = begin / kChunkElements; touched <= (begin + elements - 1) / kChunkElements;
         ++touched) {
      const auto number = static_cast<std::size_t>(source->index_.streams.first_chunk[from.stream] + touched);
      const int depth = source->index_.chunks[number].depth + (from.base ? 1 : 0);
      entry.depth = std::max(entry.depth, static_cast<std::uint8_t>(depth));
    }
  }
  if (coding.depth) entry.depth = *coding.depth;

  Bytes payload;
  if (coding.codec != codec::CodecId::same) {
    const codec::Encoder& encoder = *codec::find_encoder(coding.codec);
    const codec::EncodeContext context{{info.dtype, elements, inputs}};
    payload.resize(encoder.max_encoded_size(info.dtype, elements));
    Scratch scratch;
    const std::optional<std::size_t> size = must(encoder.encode(data, context, payload, scratch));
    if (!size) throw std::logic_error("the codec cannot express this chunk");
    payload.resize(*size);
  }
  entry.codec = static_cast<std::uint16_t>(coding.codec);
  entry.decoded_hash = hash64(data);
  entry.stored_hash = hash64(payload);
  entry.stored_bytes = static_cast<std::uint32_t>(payload.size());
  entry.offset = payload.empty() ? 0 : container::kHeaderBytes + payloads.size();
  payloads.insert(payloads.end(), payload.begin(), payload.end());
}

Bytes StateBuilder::build() {
  index_.streams = must(container::derive_streams(index_.content));
  index_.encoding.writer = "a test";
  index_.encoding.policy = "by hand";
  index_.encoding.streams.resize(index_.streams.streams.size());
  index_.chunks.assign(static_cast<std::size_t>(index_.streams.first_chunk.back()), {});
  Bytes payloads;
  std::vector<std::size_t> by_rank(index_.streams.streams.size());
  std::iota(by_rank.begin(), by_rank.end(), std::size_t{0});
  std::ranges::sort(by_rank, {}, [&](std::size_t stream) { return std::pair(stream_coding(stream).rank, stream); });
  for (const std::size_t stream : by_rank) {
    const Coding& coding = stream_coding(stream);
    index_.encoding.streams[stream].inputs = coding.inputs;
    index_.encoding.streams[stream].rank = coding.rank;
    for (std::uint64_t chunk = 0; chunk < index_.streams.streams[stream].chunk_count(); ++chunk) {
      const auto number = static_cast<std::size_t>(index_.streams.first_chunk[stream] + chunk);
      encode(stream, chunk, coding, index_.chunks[number], payloads);
    }
  }
  const container::SerializedIndex serialized = must(container::serialize_index(index_));
  index_.id = serialized.id;
  return container::join_file(payloads, serialized.bytes, serialized.id);
}

Bytes random_bytes(std::size_t size, std::uint64_t seed) {
  Bytes bytes(size);
  std::uint64_t state = seed * 2 + 1;
  for (std::byte& byte : bytes) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    byte = static_cast<std::byte>(state >> 56);
  }
  return bytes;
}

os::FakeFileSystem& no_files() {
  static os::FakeFileSystem files;
  return files;
}

Result<std::shared_ptr<const Base>> MapBases::find(const SnapshotId& id) const {
  for (const std::shared_ptr<const Base>& base : bases_) {
    if (base->id() == id) return base;
  }
  return fail(ErrorKind::not_found, "no base " + id.to_hex());
}

}  // namespace bitsnap::restore
