// Which codecs compete for the chunks of a stream. The rules are a fixed table (candidates.cpp): policy, dtype, role,
// quantization and the inputs that exist decide. planner.hpp chooses among the candidates.
//
// Plain data and pure functions; any thread may call them.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <bitsnap/quantization.hpp>
#include <bitsnap/tensor.hpp>

#include "codec/encoder.hpp"
#include "plan/planner_settings.hpp"

namespace bitsnap::plan {

// The inputs that a candidate codes a chunk against.
enum class CandidateInputs : std::uint8_t {
  none,
  base,            // the same elements in an earlier snapshot
  peer,            // the elements at the same places in the stream's peer
  optimizer_step,  // the base, and the moments from which the optimizer's step since the base can be computed
};

// One way to code the chunks of a stream.
struct Candidate {
  const codec::Encoder* encoder = nullptr;
  CandidateInputs inputs = CandidateInputs::none;
  bool is_general = false;  // makes no use of the structure of floats

  [[nodiscard]] bool uses_base() const noexcept {
    return inputs == CandidateInputs::base || inputs == CandidateInputs::optimizer_step;
  }
  friend bool operator==(const Candidate&, const Candidate&) = default;
};

// What one chunk may be coded against, and what else its encoder knows. Spans only: the caller owns the bytes.
struct Surroundings {
  // Inputs without bytes do not exist.
  codec::Input base = {codec::InputKind::base, DType::opaque, {}};
  codec::Input peer = {codec::InputKind::peer, DType::opaque, {}};
  std::span<const codec::Input> step = {};  // of CandidateInputs::optimizer_step

  codec::RowPlace rows = {};
  std::optional<codec::Lattice> lattice = {};           // the elements were made multiples, computed with the peer
  std::span<const codec::ClusterExtent> clusters = {};  // the elements were quantized to these
  std::uint32_t base_depth = 0;                         // links that decoding the base itself follows

  // nullopt: an input of the candidate does not exist. Valid as long as this object.
  [[nodiscard]] std::optional<std::span<const codec::Input>> inputs_of(const Candidate& candidate) const noexcept {
    const auto if_there = [](const codec::Input& input) {
      return input.bytes.empty() ? std::nullopt : std::optional(std::span(&input, 1));
    };
    switch (candidate.inputs) {
      case CandidateInputs::none: return std::span<const codec::Input>();
      case CandidateInputs::base: return if_there(base);
      case CandidateInputs::peer: return if_there(peer);
      case CandidateInputs::optimizer_step: break;
    }
    return base.bytes.empty() || step.empty() ? std::nullopt : std::optional(step);
  }
};

// What is known of a stream before its first chunk is read.
struct StreamTraits {
  DType dtype = DType::opaque;
  Role role = Role::other;
  bool is_pool = false;  // the pool of small tensors
  bool has_base = false;
  std::optional<DType> peer_dtype = {};  // nullopt: the stream has no peer
  // The inputs of CandidateInputs::optimizer_step without their bytes, the base first; empty if there are none. After
  // Quantization::update_step the last one is the peer.
  std::span<const codec::Input> step_inputs = {};
  Quantization quantization = Quantization::exact;  // applied to the stream before coding
};

// In the order that decides ties.
[[nodiscard]] std::vector<Candidate> candidates_of(const PlannerSettings& settings, const StreamTraits& stream);

// Whether any codec that the settings allow takes a peer, or the inputs of an optimizer step.
[[nodiscard]] bool codes_with_peers(const PlannerSettings& settings) noexcept;
[[nodiscard]] bool codes_with_optimizer_steps(const PlannerSettings& settings) noexcept;

// "byte_group on base", for people.
[[nodiscard]] std::string candidate_name(const Candidate& candidate);

}  // namespace bitsnap::plan
