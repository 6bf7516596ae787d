// Studying a state: which bits of its tensors stay the same, their entropies, and how small codecs, baselines and
// quantizers make them; alone and against an earlier state of the same run.
//
// Samples bound the time: runs of consecutive elements, at places that depend on the numbers of elements alone.
// Entropies are of order 0, in bits. Values are per sampled element; shares are from 0 to 1. Values of a group are
// means over its tensors, weighted by their numbers of elements. The same input gives the same values for every number
// of threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <bitsnap/coder.hpp>
#include <bitsnap/dtype.hpp>
#include <bitsnap/error.hpp>
#include <bitsnap/quantization.hpp>
#include <bitsnap/snapshot.hpp>
#include <bitsnap/tensor.hpp>

namespace bitsnap {

// Tensors, and a function that fills `out` with the bytes of a tensor from `offset` on. Several threads call `read` at
// the same time.
struct AnalysisState {
  std::vector<TensorInfo> tensors;
  std::function<Result<void>(std::size_t tensor, std::uint64_t offset, std::span<std::byte> out)> read;
};

struct AnalysisOptions {
  std::uint64_t sample_bytes = 0;                            // approximate size of the sample; 0: everything
  std::vector<std::shared_ptr<const Coder>> baselines = {};  // compared with the codecs, also behind byte planes
  bool quantizers = true;                                    // whether quantizers are measured
  std::function<bool(const TensorInfo&)> wanted = nullptr;   // which tensors are analyzed; nullptr: all
  // Adam's values for the next update of a first moment: update_step needs them, and so do errors of updates. nullopt,
  // or no function: unknown. Called before anything is read.
  std::function<std::optional<AdamNumbers>(std::size_t tensor)> adam = nullptr;
  RunOptions run = {};
  // Codecs, baselines and quantizers are measured on every tensor. Otherwise, if the sample is limited, they are
  // measured on some of the tensors of up to 16,384 elements: about 2^17 elements of each role and dtype. The findings
  // of the others have none.
  bool codes_all_tensors = false;
};

// Smaller tensors share a stream in a snapshot, and are not analyzed.
inline constexpr std::uint64_t kLeastAnalyzedBytes = 4096;

// Changes since the earlier state. Lists by bit and by byte plane begin with the most significant one.
struct ChangeFindings {
  std::uint64_t elements = 0;         // that these values stand for
  double changed = 0;                 // share of those whose bits differ
  double sign_changed = 0;            // of floats and signed integers
  std::vector<double> same_bits;      // by bit, share of elements in which it is the same
  std::vector<double> xor_entropies;  // by byte plane of the XOR

  // Shares by ULP distance: 0, 1, 2 to 3, 4 to 7 and so on in powers of two, up to the largest that occurs. Empty for
  // dtypes without an order.
  std::vector<double> distances;
  // Entropy of the delta in ULP; deltas that agree in their four leading bits count as equally likely.
  std::optional<double> delta_entropy;
  std::optional<double> delta_entropy_by_exponent;  // given the exponent of the base; floats only
};

// Size of the elements by one coder. Runs that it cannot express or shrink count with their raw size.
struct CodedFindings {
  enum class Form : std::uint8_t { alone, on_base, planes, xor_planes };

  std::string coder;
  Form form = Form::alone;     // codecs: alone, on_base; baselines: alone, planes, xor_planes
  std::uint64_t elements = 0;  // that these values stand for
  double bits = 0;             // per element
  double expressed = 0;        // share of elements that the coder can express
};

[[nodiscard]] std::string_view coded_form_name(CodedFindings::Form form) noexcept;

// Errors of Adam's updates when first moments are quantized and second moments are exact; as UpdateErrors, per element.
struct UpdateFindings {
  std::uint64_t elements = 0;  // that these values stand for
  double mean = 0;
  double largest = 0;
  double mean_square = 0;
  double mean_of_updates = 0;  // magnitude of the exact updates
  double mean_square_of_updates = 0;
};

// A quantizer with one of its parameters: its bits and its errors.
struct QuantizerFindings {
  std::string quantizer;               // "round_mantissa", "clusters", "update_step"
  double parameter = 0;                // kept bits of mantissa; number of clusters; part of an update
  std::uint64_t elements = 0;          // that these values stand for
  std::optional<double> nominal_bits;  // per element, as the method is published; clusters only
  double bits = 0;                     // after the codec that codes it smallest, without a base
  std::string codec;                   // its name; "mix" for groups whose tensors have several
  std::optional<double> bits_on_base;  // with a base that is quantized in the same way
  std::string codec_on_base;
  std::uint64_t elements_on_base = 0;
  double mean_relative = 0;  // MRE
  double max_relative = 0;
  double mean_square = 0;  // MSE
  double max_absolute = 0;
  std::optional<UpdateFindings> update;  // for first moments with known AdamNumbers
};

// The codec that codes the elements smallest.
struct BestCodec {
  std::string codec;  // "+base" if it uses one; "mix" for groups whose tensors have several
  std::uint64_t elements = 0;
  double bits = 0;
};

// Findings about one tensor or a group. Lists by bit and by byte plane begin with the most significant one.
struct Findings {
  std::uint64_t elements = 0;              // that these values stand for
  std::uint64_t looked_at = 0;             // sampled elements
  double zeros = 0;                        // share of elements that are 0 of either sign
  std::uint64_t nans = 0;                  // in the sample
  std::uint64_t infinities = 0;            // in the sample
  std::vector<double> ones;                // by bit, share of elements in which it is set
  std::vector<double> constant_bits;       // by bit, share of elements in whose tensor it is constant
  std::vector<double> plane_entropies;     // by byte plane
  std::optional<double> sign_entropy;      // floats only, as the next
  std::optional<double> exponent_entropy;  // of the exponent field
  std::optional<ChangeFindings> change;    // if there is an earlier state
  std::vector<CodedFindings> codecs;       // bitsnap's codecs that express any of it, by id
  std::vector<CodedFindings> baselines;    // in the order of the options
  std::optional<BestCodec> best_alone;
  std::optional<BestCodec> best_on_base;  // with or without base, whichever is smaller; if there is a base
  std::vector<QuantizerFindings> quantizers;
};

struct TensorAnalysis {
  // Whether the tensor is analyzed, or why not.
  enum class Kind : std::uint8_t { analyzed, alias, small /* or empty */, unwanted };

  std::size_t tensor = 0;  // index in the state
  Kind kind = Kind::analyzed;
  Findings findings;
};

// The analyzed tensors of one role and dtype.
struct GroupAnalysis {
  Role role = Role::other;
  DType dtype = DType::opaque;
  std::string dtype_name;
  std::uint64_t tensors = 0;
  std::uint64_t raw_bytes = 0;
  Findings findings;
};

struct Analysis {
  std::vector<TensorAnalysis> tensors;  // one per tensor of the state
  std::vector<GroupAnalysis> groups;    // weights, masters, exp_avg, exp_avg_sq, others
  std::uint64_t raw_bytes = 0;          // of all tensors, aliases counted once
  std::uint64_t analyzed_bytes = 0;     // of the analyzed tensors
  std::uint64_t looked_at_bytes = 0;    // size of the sample
};

// `earlier` may be nullptr. A tensor is compared with the earlier tensor of the same name, dtype and size.
[[nodiscard]] Result<Analysis> analyze_state(const AnalysisState& state, const AnalysisState* earlier,
                                             const AnalysisOptions& options = {});

}  // namespace bitsnap
