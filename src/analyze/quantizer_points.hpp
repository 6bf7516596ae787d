// Quantizers at their settings: the bits that codecs make of what they leave, against the errors that they make.
//
// Those that look at elements alone are in sweep_of(), and update_step, which stands beside second moments, in
// sweep_of_updates(). `clusters` has to be fitted to a tensor first.
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

// A quantizer as it is set, and how findings name it.
struct QuantizerSetting {
  std::shared_ptr<const quantize::Quantizer> quantizer;
  double parameter = 0;
  std::optional<double> nominal_bits = {};
  std::optional<codec::Lattice> lattice = {};  // of update_step: what elements become multiples of
};

// Most bits of a mantissa that round_mantissa is asked to keep.
inline constexpr unsigned kMostKeptBits = 12;

// Those that need nothing but the elements of this dtype: round_mantissa, keeping from one bit on.
[[nodiscard]] Result<std::vector<QuantizerSetting>> sweep_of(DType dtype);

// update_step, from the finest step to the coarsest, for first moments of F32 with these numbers. invalid_argument for
// numbers that no Adam has; nothing where no step was taken.
[[nodiscard]] Result<std::vector<QuantizerSetting>> sweep_of_updates(const AdamNumbers& adam);

// Of some runs of a tensor, quantized.
struct QuantizerTally {
  ErrorTally errors;
  UpdateErrors updates;
  std::vector<CodedBytes> coded;  // by coding

  // Adds those of the run that follows.
  void add(const QuantizerTally& next);
};

// Base, if there is one, and elements are quantized alike: the base of a delta is what was stored. `adam` may be
// nullptr where the run has no second moments.
[[nodiscard]] Result<QuantizerTally> measure_quantizer(const QuantizerSetting& setting, const RunBytes& run,
                                                       const AdamNumbers* adam, std::span<const Coding> codings,
                                                       Scratch& scratch);

// The coding that makes least of a tensor of `element_bytes`: of those alone, or of all. `raw` where none makes it
// smaller. Nothing where no element has been coded with a base and `on_base` is asked for.
[[nodiscard]] std::optional<BestCodec> best_of(std::span<const CodedBytes> coded, std::span<const Coding> codings,
                                               bool on_base, std::size_t element_bytes, std::uint64_t elements);

// `elements` is what the tally stands for.
[[nodiscard]] QuantizerFindings make_findings(const QuantizerSetting& setting, const QuantizerTally& tally,
                                              std::span<const Coding> codings, std::size_t element_bytes,
                                              std::uint64_t elements);

}  // namespace bitsnap::analyze
