// Quantizers with several parameters each: the bits after the smallest codec, and the errors.
//
// sweep_of() has the quantizers that need the elements alone, sweep_of_updates() has update_step, which needs second
// moments. `clusters` has to be fitted to a tensor first.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include <bitsnap/analysis.hpp>
#include <bitsnap/error_tally.hpp>
#include <bitsnap/quantization.hpp>

#include "analyze/coded_bytes.hpp"
#include "quantize/quantizer.hpp"

namespace bitsnap::analyze {

// A quantizer with its parameter, as findings name it.
struct QuantizerSetting {
  std::shared_ptr<const quantize::Quantizer> quantizer;
  double parameter = 0;
  std::optional<double> nominal_bits = {};
  std::optional<codec::Lattice> lattice = {};  // of update_step: the lattice of the quantized elements
};

// The most mantissa bits that the sweep of round_mantissa keeps.
inline constexpr unsigned kMostKeptBits = 12;

// round_mantissa with 1 to kMostKeptBits bits, for this dtype.
[[nodiscard]] Result<std::vector<QuantizerSetting>> sweep_of(DType dtype);

// update_step for F32 first moments, from the finest step to the coarsest. Fails with invalid_argument if `adam` is not
// valid; empty if no training step was taken.
[[nodiscard]] Result<std::vector<QuantizerSetting>> sweep_of_updates(const AdamNumbers& adam);

// Measurements of some quantized runs of a tensor.
struct QuantizerTally {
  ErrorTally errors;
  UpdateErrors updates;
  std::vector<CodedBytes> coded;  // by coding

  // Adds the next run.
  void add(const QuantizerTally& next);
};

// Quantizes the base, if any, like the elements, because a delta is coded against stored elements. `adam` may be
// nullptr if the run has no second moments.
[[nodiscard]] Result<QuantizerTally> measure_quantizer(const QuantizerSetting& setting, const RunBytes& run,
                                                       const AdamNumbers* adam, std::span<const Coding> codings,
                                                       Scratch& scratch);

// The smallest coding of elements of `element_bytes`, among all or, without `on_base`, among those without a base;
// `raw` if none shrinks them. nullopt if `on_base` is set but nothing was coded with a base.
[[nodiscard]] std::optional<BestCodec> best_of(std::span<const CodedBytes> coded, std::span<const Coding> codings,
                                               bool on_base, std::size_t element_bytes, std::uint64_t elements);

// `elements` is the number that the tally stands for.
[[nodiscard]] QuantizerFindings make_findings(const QuantizerSetting& setting, const QuantizerTally& tally,
                                              std::span<const Coding> codings, std::size_t element_bytes,
                                              std::uint64_t elements);

}  // namespace bitsnap::analyze
