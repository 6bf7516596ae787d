// What the chunks of each stream of a new file may be coded against, decided before the first chunk is coded.
//
// make_stream_jobs() makes a StreamJob for each stream; all encoders read the jobs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <vector>

#include <bitsnap/error.hpp>
#include <bitsnap/snapshot.hpp>

#include "codec/encoder.hpp"
#include "container/index.hpp"
#include "plan/planner.hpp"
#include "save/base_finder.hpp"
#include "save/input_table.hpp"
#include "save/peer_finder.hpp"
#include "save/quantized_source.hpp"
#include "save/state_tap.hpp"

namespace bitsnap::save {

// Which chunks of earlier snapshots a new chunk may refer to.
struct ReferenceRules {
  std::uint32_t max_depth = 8;              // SaveOptions::max_depth
  bool bases_are_later = false;             // the bases hold later states of the training
  std::span<const SnapshotId> barred = {};  // snapshots that nothing may refer to
};

// What a file is made from, and the rules. Everything here outlives the writing of the file.
struct PipelineParts {
  const StreamSource& source;
  plan::PlannerSettings settings = {};
  ReferenceRules rules = {};
  BaseFinder* bases = nullptr;  // nullptr: no stream has a base
  StateTap* tap = nullptr;      // may be nullptr
  // The given masters, by stream (lay_out_masters()); bitsnap searches no others for these weights. Empty: none.
  std::span<const std::optional<PeerStream>> masters = {};
  const StoredChunks* stored = nullptr;        // the chunks that are copied; nullptr: none
  const QuantizedSource* quantized = nullptr;  // the source, if it quantizes anything
  const Progress& progress;
};

// The inputs of one optimizer step beside the stream's own base: streams with as many F32 elements, in the same order.
struct StepStreams {
  std::vector<BaseStream> of_base;  // of a second moment: the first moment; of a parameter before the step: the moments
  std::vector<PeerStream> peers;    // of a second moment: the first moment; of a parameter after the step: the moments
};

struct StreamJob {
  std::size_t stream = 0;
  DType dtype = DType::opaque;
  std::uint64_t elements = 0;
  std::size_t row_elements = 0;  // of the tensor as a matrix; 0: it has no rows
  std::optional<BaseStream> base;
  std::optional<PeerStream> peer;
  DType peer_dtype = DType::opaque;
  std::uint64_t peer_elements = 0;  // of the peer's whole stream
  std::optional<StepStreams> step;
  std::optional<PeerStream> twin;                       // an earlier stream that seems to hold the same bytes
  std::optional<codec::Lattice> lattice;                // the elements are multiples, computed with the peer
  std::span<const codec::ClusterExtent> clusters = {};  // the elements were quantized to these; owned by the source
  plan::StreamPlanner* planner = nullptr;
  bool is_stored = false;  // all chunks are copied, none is encoded

  // The streams of the same file that chunks may be coded against.
  [[nodiscard]] std::vector<PeerStream> peers() const {
    std::vector<PeerStream> peers;
    if (step) peers = step->peers;
    if (peer) peers.push_back(*peer);
    if (twin) peers.push_back(*twin);
    return peers;
  }
};

// Both by stream. The jobs point to the planners.
struct StreamJobs {
  std::vector<StreamJob> jobs;
  std::deque<plan::StreamPlanner> planners;
};

// Finds bases, optimizer steps, peers and twins, in this order. Sets the ranks of the streams in `index`, so that each
// stream comes after the streams that it may be coded against, and keeps places in `inputs` for the bases.
[[nodiscard]] Result<StreamJobs> make_stream_jobs(container::Index& index, const PipelineParts& parts,
                                                  InputTable& inputs);

}  // namespace bitsnap::save
