// What a chunk may be coded against, and what else its encoder knows.
//
// Spans only: whoever makes a Surroundings owns the bytes.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "codec/encoder.hpp"
#include "plan/candidates.hpp"

namespace bitsnap::plan {

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

}  // namespace bitsnap::plan
