// One file being written: the pipeline that makes its chunks in parallel and writes them in order, and the tables that
// say what was done. What saving a state and rewriting a snapshot have in common.
//
// Memory is bounded by the slots of the pipeline. Used once, by one thread; what it is given is called from several.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <bitsnap/error.hpp>
#include <bitsnap/writer.hpp>

#include "container/file_writer.hpp"
#include "container/index.hpp"
#include "exec/executor.hpp"
#include "os/file_system.hpp"
#include "plan/planner.hpp"
#include "plan/shared_choice.hpp"
#include "save/chunk_encoder.hpp"
#include "save/input_table.hpp"
#include "save/quantized_source.hpp"
#include "save/snapshot_writer.hpp"
#include "save/stream_source.hpp"

namespace bitsnap::save {

// What a file is made from and by which rules. All of it outlives the recording.
struct PipelineParts {
  const StreamSource& source;
  plan::PlannerSettings settings = {};
  ReferenceRules rules = {};
  BaseFinder* bases = nullptr;  // nullptr: no stream has a base
  StateTap* tap = nullptr;      // may be nullptr
  // Which streams are given to be roundings of which, and are not looked for; empty: none.
  std::span<const std::optional<PeerStream>> masters = {};
  const StoredChunks* stored = nullptr;        // chunks that are taken over; nullptr: none
  const QuantizedSource* quantized = nullptr;  // the source, where it loses anything
  const Progress& progress;
};

class SnapshotPipeline {
 public:
  // The index has content, streams and safetensors header, and an entry for every chunk. Of chunks that are taken over
  // the entries are those to be written but for where the payload lies, with the bases, inputs and parameters that they
  // name, and its streams have the reasons that hold if all their chunks are. The rest is filled in.
  SnapshotPipeline(container::Index& index, const PipelineParts& parts, os::WritableFile& file);

  [[nodiscard]] Result<WriteSummary> run(exec::Executor& executor);

 private:
  Result<void> prepare_streams();
  // Finding a base may open files: only where it could be of use.
  Result<void> find_bases();
  // Ranks first moments that are multiples behind what they are multiples of.
  void find_multiples();
  [[nodiscard]] std::optional<QuantizedSource::Multiples> multiples_of(std::size_t stream) const noexcept;
  [[nodiscard]] bool holds_multiples(std::size_t stream) const noexcept;
  [[nodiscard]] std::optional<codec::Lattice> lattice_of(std::size_t stream) const;
  [[nodiscard]] Quantization quantization_of(std::size_t stream, bool are_multiples) const;
  [[nodiscard]] std::span<const codec::ClusterExtent> clusters_of(std::size_t stream) const noexcept;
  // Ranks streams behind those that tell their steps, which stand before them.
  void find_optimizer_steps();
  std::uint8_t rank_behind(std::size_t stream, std::span<const PeerStream> peers);
  void find_rounding_peers();
  StreamJob make_job(std::size_t stream);
  // Where chunks are taken over: what their streams name.
  [[nodiscard]] std::vector<std::optional<PeerStream>> peers_named() const;
  // Leaves of the peers those that may be referred to, and ranks streams behind them.
  void rank_peers();
  void order_chunks();
  // Of tensors whose names tell them apart by numbers alone, as layers do.
  void group_like_chunks();
  [[nodiscard]] std::string likeness_key(const StreamJob& job) const;
  [[nodiscard]] bool is_stored(std::size_t number) const { return parts_.stored && parts_.stored->contains(number); }
  [[nodiscard]] bool is_all_stored(std::size_t stream) const;
  [[nodiscard]] std::size_t stream_of(std::size_t number) const;
  [[nodiscard]] Role role_of(std::size_t stream) const;
  // The streams of this file that its chunks may be coded against.
  [[nodiscard]] static std::vector<PeerStream> peers_of(const StreamJob& job);
  [[nodiscard]] std::string describe(std::size_t stream) const;

  // Chunks are told by their numbers in the file.
  Result<EncodedChunk> make_chunk(std::size_t number, ChunkEncoder& encoder);
  Result<void> commit_chunk(std::size_t number, EncodedChunk& chunk, ChunkEncoder& encoder);
  Result<void> enter_encoded(std::size_t number, EncodedChunk& chunk, ChunkEncoder& encoder);
  void enter_stored(std::size_t number);
  // Enter an input of a chunk, whose first element this is, behind those that it has. False where that may not be.
  bool refer_to_peer(std::size_t stream, const PeerUse& use, std::size_t place, container::ChunkEntry& entry);
  Result<bool> refer_to_base(std::size_t stream, std::uint64_t first, const BaseUse& use, std::size_t place,
                             container::ChunkEntry& entry);

  container::Index& index_;
  const PipelineParts parts_;
  container::FileWriter writer_;
  std::optional<InputTable> inputs_;
  std::vector<std::optional<BaseStream>> bases_;  // as the next four, by stream
  std::vector<std::optional<StepStreams>> steps_;
  std::vector<std::optional<PeerStream>> peers_;
  std::deque<plan::StreamPlanner> planners_;
  std::vector<StreamJob> jobs_;
  std::vector<std::size_t> order_;  // chunks as they are coded and written: each behind those of its peers
  std::deque<plan::SharedChoice> groups_;
  struct Place {
    plan::SharedChoice* group = nullptr;
    std::size_t member = 0;
  };
  std::vector<Place> places_;  // by chunk
  std::vector<Lost> lost_;     // by stream
  std::uint32_t depth_ = 0;    // of the deepest chunk
  std::uint64_t raw_bytes_ = 0;
  std::uint64_t total_bytes_ = 0;
};

}  // namespace bitsnap::save
