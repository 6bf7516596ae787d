// The pipeline that codes and writes the chunks of a state, and the index that says what was done.
#include "record/snapshot_recorder.hpp"

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <bitsnap/version.hpp>

#include "base/no_throw.hpp"
#include "base/try.hpp"
#include "codec/registry.hpp"
#include "container/file_writer.hpp"
#include "container/index.hpp"
#include "container/json_text.hpp"
#include "os/atomic_file.hpp"
#include "record/base_finder.hpp"
#include "record/chunk_encoder.hpp"
#include "record/state_layout.hpp"

namespace bitsnap::record {
namespace {

// Half of what the format allows, so that references to chunks that may not be built upon always have room.
constexpr std::uint32_t kMaxBuildDepth = container::kMaxDepth / 2;

// One save: the state of the pipeline between its stages.
class Recording {
 public:
  Recording(const State& state, const SaveOptions& options, BaseFinder* bases, StateTap* tap, os::WritableFile& file)
      : state_(state), options_(options), bases_(bases), tap_(tap), writer_(file) {}

  Result<RecordSummary> run(exec::Executor& executor) {
    if (options_.max_depth > kMaxBuildDepth) {
      return fail(ErrorKind::invalid_argument,
                  fmt::format("max_depth {} is above {}", options_.max_depth, kMaxBuildDepth));
    }
    BITSNAP_ASSIGN(index_.content, lay_out(state_));
    BITSNAP_ASSIGN(index_.streams, container::derive_streams(index_.content));
    index_.safetensors_header = state_.safetensors_header;
    index_.encoding.writer = fmt::format("bitsnap {}", version());
    index_.encoding.policy = policy_name(options_.policy);
    BITSNAP_TRY(prepare_streams());

    const StreamReader reader(state_, index_.content, index_.streams);
    const std::size_t slots = executor.default_slots();
    std::deque<ChunkEncoder> encoders;
    for (std::size_t i = 0; i < slots; ++i) encoders.emplace_back(reader, options_.max_depth, tap_);
    std::vector<EncodedChunk> encoded(slots);

    if (tap_ != nullptr) BITSNAP_TRY(tap_->begin(index_.streams.streams));
    BITSNAP_TRY(writer_.begin());
    const std::size_t chunks = static_cast<std::size_t>(index_.streams.first_chunk.back());
    index_.chunks.resize(chunks);
    const auto work = [&](std::size_t item, std::size_t slot) -> Result<void> {
      const std::size_t stream = stream_of(item);
      auto result = encoders[slot].encode(jobs_[stream], item - index_.streams.first_chunk[stream]);
      if (!result) return tl::unexpected(std::move(result).error().within(describe(stream)));
      encoded[slot] = std::move(result).value();
      return {};
    };
    const auto commit = [&](std::size_t item, std::size_t slot) {
      return commit_chunk(item, encoded[slot], encoders[slot]);
    };
    BITSNAP_TRY(executor.run_ordered(chunks, slots, work, commit));

    for (std::size_t i = 0; i < jobs_.size(); ++i) index_.encoding.streams[i].reason = planners_[i].reason();
    BITSNAP_TRY(writer_.finish(index_));
    return RecordSummary{SaveSummary{index_.id, raw_bytes_, writer_.size_bytes(), chunks}, depth_,
                         std::move(references_)};
  }

 private:
  Result<void> prepare_streams() {
    const auto& streams = index_.streams.streams;
    index_.encoding.streams.resize(streams.size());
    for (std::size_t i = 0; i < streams.size(); ++i) {
      const StreamInfo& stream = streams[i];
      BITSNAP_ASSIGN(std::optional<BaseStream> base, find_base(stream));
      const Role role = stream.tensor ? index_.content.tensors[*stream.tensor].role : Role::other;
      const bool builds_on_base = base.has_value() && options_.max_depth > 0;
      planners_.emplace_back(options_.policy, stream.dtype, role, !stream.tensor, builds_on_base);
      if (!planners_.back().wants_base()) base.reset();
      if (base) unnamed_bases_.insert(base->base->id());
      jobs_.push_back({i, stream.dtype, stream.elements, std::move(base), &planners_.back()});
      total_bytes_ += stream.elements * element_size(stream.dtype);
    }
    return {};
  }

  Result<std::optional<BaseStream>> find_base(const StreamInfo& stream) {
    if (bases_ == nullptr) return std::nullopt;
    BITSNAP_ASSIGN(std::optional<BaseStream> base, stream.tensor
                                                       ? bases_->find(index_.content.tensors[*stream.tensor], stream)
                                                       : bases_->find_pool(stream));
    // Each base of a stream has to fit into the table of bases, whatever else comes to stand there.
    const bool is_full = unnamed_bases_.size() >= DecodeLimits().bases;
    if (base && is_full && !unnamed_bases_.contains(base->base->id())) base.reset();
    return base;
  }

  [[nodiscard]] std::size_t stream_of(std::size_t chunk) const {
    const auto& first = index_.streams.first_chunk;
    return static_cast<std::size_t>(std::ranges::upper_bound(first, chunk) - first.begin()) - 1;
  }

  [[nodiscard]] std::string describe(std::size_t stream) const {
    const auto& tensor = index_.streams.streams[stream].tensor;
    return tensor ? fmt::format("tensor {}", container::quote_name(index_.content.tensors[*tensor].name))
                  : "the pool of small tensors";
  }

  Result<void> commit_chunk(std::size_t item, EncodedChunk& chunk, ChunkEncoder& encoder) {
    const std::size_t stream = stream_of(item);
    container::ChunkEntry& entry = index_.chunks[item];
    if (chunk.input) {
      const std::uint64_t first = (item - index_.streams.first_chunk[stream]) * kChunkElements;
      BITSNAP_ASSIGN(const bool refers, refer(stream, first, *chunk.input, entry));
      if (!refers) {
        BITSNAP_ASSIGN(chunk, encoder.encode_alone(jobs_[stream]));
      }
    }
    entry.codec = static_cast<std::uint16_t>(chunk.codec);
    entry.decoded_hash = chunk.decoded_hash;
    depth_ = std::max<std::uint32_t>(depth_, entry.depth);
    BITSNAP_TRY(writer_.append_payload(chunk.payload, entry));
    planners_[stream].note(chunk.choice, codec::find_decoder(entry.codec)->name(), chunk.raw_bytes);
    raw_bytes_ += chunk.raw_bytes;
    if (options_.progress && !options_.progress(raw_bytes_, total_bytes_)) {
      return fail(ErrorKind::cancelled, "saving was cancelled by the caller");
    }
    return {};
  }

  // Enters the chunk that holds the base's bytes into the stream's inputs. Where that is not possible (the holder
  // stands at an offset before the start, or the stream has too many holders) the base itself is named, which holds the
  // same bytes. False where that may not be: it would need the holder in turn.
  Result<bool> refer(std::size_t stream, std::uint64_t first, const ChunkHolder& holder, container::ChunkEntry& entry) {
    if (holder.first_element >= first) {
      const auto input = input_number(stream, *holder.base, holder.stream, holder.first_element - first);
      if (input) {
        set_input(stream, *input, holder.depth, entry);
        return true;
      }
    }
    if (options_.max_depth == 0) return false;
    const BaseStream& base = *jobs_[stream].base;
    const auto input = input_number(stream, *base.base, base.stream, 0);
    if (!input) return fail(ErrorKind::internal, fmt::format("{}: no room for its base", describe(stream)));
    set_input(stream, *input, holder.own_depth, entry);
    return true;
  }

  // `depth` is that of the chunk that is referred to.
  void set_input(std::size_t stream, std::uint8_t input, std::uint32_t depth, container::ChunkEntry& entry) {
    entry.inputs[0] = input;
    entry.depth = static_cast<std::uint8_t>(depth + 1);
    if (depth > 0) references_[*index_.encoding.streams[stream].inputs[input].base].standalone = false;
  }

  // Index into the stream's inputs. The last place there is kept for the base itself, and in the table of bases one for
  // the base of every stream.
  std::optional<std::uint8_t> input_number(std::size_t stream, const Base& base, std::size_t base_stream,
                                           std::uint64_t element) {
    auto& inputs = index_.encoding.streams[stream].inputs;
    if (const auto number = base_numbers_.find(base.id()); number != base_numbers_.end()) {
      const auto known = std::ranges::find(inputs, container::StreamInput{number->second, base_stream, element});
      if (known != inputs.end()) return static_cast<std::uint8_t>(known - inputs.begin());
    }
    const BaseStream& own = *jobs_[stream].base;
    const bool is_own_base = base.id() == own.base->id() && base_stream == own.stream && element == 0;
    if (inputs.size() + (is_own_base ? 0 : 1) >= container::kNoInput) return std::nullopt;
    const bool is_expected = base_numbers_.contains(base.id()) || unnamed_bases_.contains(base.id());
    if (!is_expected && base_numbers_.size() + unnamed_bases_.size() >= DecodeLimits().bases) return std::nullopt;
    inputs.push_back({base_number(base), base_stream, element});
    return static_cast<std::uint8_t>(inputs.size() - 1);
  }

  std::uint32_t base_number(const Base& base) {
    const auto [position, is_new] =
        base_numbers_.emplace(base.id(), static_cast<std::uint32_t>(index_.encoding.bases.size()));
    if (is_new) {
      index_.encoding.bases.push_back({base.id(), std::string(os::file_name(base.name()))});
      references_.push_back({base.id()});
      unnamed_bases_.erase(base.id());
    }
    return position->second;
  }

  const State& state_;
  const SaveOptions& options_;
  BaseFinder* bases_;
  StateTap* tap_;
  container::FileWriter writer_;
  container::Index index_;
  std::deque<plan::StreamPlanner> planners_;  // one per stream
  std::vector<StreamJob> jobs_;
  std::map<SnapshotId, std::uint32_t> base_numbers_;
  std::set<SnapshotId> unnamed_bases_;  // bases of streams that nothing refers to yet
  std::vector<Reference> references_;   // as the table of bases
  std::uint32_t depth_ = 0;             // of the deepest chunk
  std::uint64_t raw_bytes_ = 0;
  std::uint64_t total_bytes_ = 0;
};

}  // namespace

Result<RecordSummary> record_snapshot(const State& state, const SaveOptions& options, BaseFinder* bases, StateTap* tap,
                                      os::WritableFile& file, exec::Executor& executor) {
  return Recording(state, options, bases, tap, file).run(executor);
}

}  // namespace bitsnap::record

namespace bitsnap {

Result<SaveSummary> save_snapshot(const std::string& path, const State& state, const SaveOptions& options) {
  const auto save = [&]() -> Result<SaveSummary> {
    if (const auto* base = dynamic_cast<const Snapshot*>(options.base.get()); base != nullptr && options.overwrite) {
      BITSNAP_TRY(base->check_not_needed(path));
    }
    BITSNAP_ASSIGN(os::AtomicFile file, os::AtomicFile::create(os::real_file_system(), path, options.overwrite));
    const auto executor = exec::make_executor(options.threads);
    std::optional<record::SingleBase> base;
    if (options.base != nullptr) base.emplace(options.base);
    record::BaseFinder* const bases = base ? &*base : nullptr;
    BITSNAP_ASSIGN(const record::RecordSummary recorded,
                   record::record_snapshot(state, options, bases, nullptr, file.file(), *executor));
    BITSNAP_TRY(file.commit());
    return recorded.summary;
  };
  auto result = no_throw("saving", save);
  if (!result) return tl::unexpected(name_file(std::move(result).error(), path));
  return result;
}

}  // namespace bitsnap
