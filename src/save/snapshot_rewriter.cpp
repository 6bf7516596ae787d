// Selects the chunks to copy and renumbers their inputs; the pipeline does the rest.
#include "save/snapshot_rewriter.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/no_throw.hpp"
#include "base/try.hpp"
#include "codec/codec_id.hpp"
#include "container/index.hpp"
#include "restore/snapshot_impl.hpp"
#include "save/snapshot_pipeline.hpp"

namespace bitsnap::save {
namespace {

// The decoded streams of the old file.
class DecodedStreams final : public StreamSource {
 public:
  DecodedStreams(const Snapshot& source, bool is_sampled) noexcept : source_(source), is_sampled_(is_sampled) {}

  Result<void> read(std::size_t stream, std::uint64_t offset, ByteSpan out, ReadContext& context) const override {
    const StreamInfo& info = source_.streams()[stream];
    const std::size_t size = element_size(info.dtype);
    const std::uint64_t first = offset / size;
    const std::uint64_t chunk = first / kChunkElements;
    const std::uint64_t begin = chunk * kChunkElements;
    const std::uint64_t elements = std::min(kChunkElements, info.elements - begin);
    const std::uint64_t end = first + out.size() / size;
    if (end > begin + elements || end - first == elements) return source_.read_elements(stream, first, out, context);
    // A sample, which reads several parts of a chunk. Only a whole chunk can be decoded.
    if (source_.sample_elements(stream, first, out)) return {};
    const std::lock_guard lock(mutex_);
    if (sampled_ != std::pair(stream, chunk)) {
      sampled_.reset();
      bytes_.resize(static_cast<std::size_t>(elements) * size);
      BITSNAP_TRY(source_.read_elements(stream, begin, bytes_, context));
      sampled_.emplace(stream, chunk);
    }
    std::memcpy(out.data(), bytes_.data() + (first - begin) * size, out.size());
    return {};
  }
  bool can_be_sampled(std::size_t) const noexcept override { return is_sampled_; }

 private:
  const Snapshot& source_;
  const bool is_sampled_;
  mutable std::mutex mutex_;                                              // protects the following
  mutable std::optional<std::pair<std::size_t, std::uint64_t>> sampled_;  // stream and chunk
  mutable std::vector<std::byte> bytes_;                                  // of that chunk
};

// A standalone chunk that is smaller than it was by this factor gains nothing from a base.
constexpr std::uint64_t kSmall = 256;

// The chunks that are copied.
class KeptChunks final : public StoredChunks {
 public:
  KeptChunks(const Snapshot::Impl& source, const RewriteRules& rules)
      : source_(source), kept_(source.index().chunks.size()) {
    const container::Index& index = source.index();
    for (std::size_t stream = 0; stream < index.streams.streams.size(); ++stream) {
      const auto& inputs = index.encoding.streams[stream].inputs;
      const StreamInfo& info = index.streams.streams[stream];
      const auto is_dropped = [&](std::uint8_t input) {
        if (input == container::kNoInput || !inputs[input].base) return false;
        return rules.later_depth ||
               std::ranges::find(rules.dropped, index.encoding.bases[*inputs[input].base].id) != rules.dropped.end();
      };
      const std::uint64_t first = index.streams.first_chunk[stream];
      const auto is_encoded_again = [&](const container::ChunkEntry& chunk, std::uint64_t number) {
        const std::uint64_t elements = std::min(kChunkElements, info.elements - (number - first) * kChunkElements);
        // The labels of clusters cannot be found again.
        const bool is_clustered = chunk.codec == static_cast<std::uint16_t>(codec::CodecId::clustered);
        return rules.later_depth && !is_clustered && chunk.inputs[0] == container::kNoInput &&
               chunk.stored_bytes * kSmall > elements * element_size(info.dtype);
      };
      for (std::uint64_t number = first; number < index.streams.first_chunk[stream + 1]; ++number) {
        const container::ChunkEntry& chunk = index.chunks[static_cast<std::size_t>(number)];
        kept_[static_cast<std::size_t>(number)] =
            std::ranges::none_of(chunk.inputs, is_dropped) && !is_encoded_again(chunk, number);
      }
    }
  }

  [[nodiscard]] bool contains(std::size_t number) const noexcept override { return kept_[number]; }

  Result<ConstByteSpan> read(std::size_t number, Scratch& scratch) const override {
    const container::ChunkEntry& entry = source_.index().chunks[number];
    BITSNAP_ASSIGN(const ByteSpan payload, scratch.take(entry.stored_bytes));
    if (Result<void> read = source_.reader->read_payload(entry, payload); !read) {
      const auto [stream, chunk] = source_.chunk_numbered(number);
      return tl::unexpected(std::move(read).error().within(source_.place(stream, chunk)));
    }
    return payload;
  }

 private:
  const Snapshot::Impl& source_;
  std::vector<bool> kept_;  // by chunk number
};

// Removes the bases and inputs that no kept chunk refers to, and renumbers the others.
void keep_inputs(container::Index& index, const KeptChunks& kept) {
  std::vector<std::optional<std::uint32_t>> base_numbers(index.encoding.bases.size());
  for (std::size_t stream = 0; stream < index.streams.streams.size(); ++stream) {
    std::vector<container::StreamInput>& inputs = index.encoding.streams[stream].inputs;
    std::vector<bool> used(inputs.size());
    const auto for_kept_inputs = [&](const auto& action) {
      const std::uint64_t end = index.streams.first_chunk[stream + 1];
      for (auto number = static_cast<std::size_t>(index.streams.first_chunk[stream]); number < end; ++number) {
        if (!kept.contains(number)) continue;
        for (std::uint8_t& input : index.chunks[number].inputs) {
          if (input != container::kNoInput) action(input);
        }
      }
    };
    for_kept_inputs([&](std::uint8_t input) { used[input] = true; });
    std::vector<container::StreamInput> left;
    std::vector<std::uint8_t> numbers(inputs.size());
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      if (!used[i]) continue;
      numbers[i] = static_cast<std::uint8_t>(left.size());
      left.push_back(inputs[i]);
      if (inputs[i].base) base_numbers[*inputs[i].base] = 0;
    }
    for_kept_inputs([&](std::uint8_t& input) { input = numbers[input]; });
    inputs = std::move(left);
  }

  std::vector<BaseReference> bases;
  for (std::size_t i = 0; i < base_numbers.size(); ++i) {
    if (!base_numbers[i]) continue;
    base_numbers[i] = static_cast<std::uint32_t>(bases.size());
    bases.push_back(std::move(index.encoding.bases[i]));
  }
  index.encoding.bases = std::move(bases);
  for (container::StreamEncoding& stream : index.encoding.streams) {
    for (container::StreamInput& input : stream.inputs) {
      if (input.base) input.base = base_numbers[*input.base];
    }
  }
}

}  // namespace

Result<WriteSummary> rewrite_snapshot(const Snapshot& source, const RewriteRules& rules, BaseFinder* bases,
                                      const SaveOptions& options, os::WritableFile& file, exec::Executor& executor) {
  return no_throw("rewriting", [&]() -> Result<WriteSummary> {
    BITSNAP_ASSIGN(const plan::PlannerSettings planner_settings, plan::make_planner_settings(options.settings));
    const Snapshot::Impl& impl = Snapshot::Impl::of(source);
    const DecodedStreams streams(source, rules.later_depth.has_value());
    const KeptChunks kept(impl, rules);
    container::Index index = impl.index();
    BITSNAP_ASSIGN(index.content_text, impl.reader->read_content_text(impl.limits));
    keep_inputs(index, kept);
    std::vector<SnapshotId> barred(rules.dropped.begin(), rules.dropped.end());
    barred.push_back(source.id());
    const PipelineParts parts{.source = streams,
                              .settings = planner_settings,
                              .rules = {.max_depth = rules.later_depth.value_or(0),
                                        .bases_are_later = rules.later_depth.has_value(),
                                        .barred = barred},
                              .bases = bases,
                              .stored = &kept,
                              .progress = options.progress};
    BITSNAP_ASSIGN(WriteSummary written, run_pipeline(index, parts, file, executor));
    if (written.summary.id != source.id()) {
      return fail(ErrorKind::internal, fmt::format("{}: the rewritten file has the id {}, expected {}", source.name(),
                                                   written.summary.id.to_hex(), source.id().to_hex()));
    }
    return written;
  });
}

}  // namespace bitsnap::save
