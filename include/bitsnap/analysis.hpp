// Studying a state: which bits of its tensors stay, how much they say, and what codecs, general engines and quantizers
// make of them; alone and against an earlier state of the same run.
//
// From samples, so that the time is bounded: whole runs of elements, at places that depend on the numbers of elements
// alone. Entropies are of order 0, in bits. All numbers are per element looked at, shares are from 0 to 1; those of a
// group are means over its tensors, each of which counts by all the elements it has. The same input gives the same
// numbers for every number of threads. Plain data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <bitsnap/dtype.hpp>
#include <bitsnap/error.hpp>
#include <bitsnap/quantization.hpp>
#include <bitsnap/snapshot.hpp>
#include <bitsnap/tensor.hpp>

namespace bitsnap {

// Tensors, and the way to their bytes from `offset` on: called from any thread, several at a time.
struct AnalysisState {
  std::vector<TensorInfo> tensors;
  std::function<Result<void>(std::size_t tensor, std::uint64_t offset, std::span<std::byte> out)> read;
};

// A coder of bytes that knows nothing of tensors, of the caller's: how long what it makes of some bytes is. Called from
// any thread, several at a time.
struct AnalysisEngine {
  std::string name;
  std::function<Result<std::uint64_t>(std::span<const std::byte> bytes)> encoded_size;
};

struct AnalysisOptions {
  std::uint64_t sample_bytes = 0;                           // about as much is looked at; 0: everything
  std::vector<AnalysisEngine> engines = {};                 // to be compared with the codecs
  bool quantizers = true;                                   // whether what they make of it is looked at
  std::function<bool(const TensorInfo&)> wanted = nullptr;  // which tensors are looked at; nullptr: all
  // What the next update of a first moment is computed with: for the quantizer update_step, and for what all of them do
  // to updates. nullopt, or no function: nobody knows. Asked before anything is looked at.
  std::function<std::optional<AdamNumbers>(std::size_t tensor)> adam = nullptr;
  RunOptions run = {};
};

// Tensors below this share a stream in a snapshot, and are not looked at.
inline constexpr std::uint64_t kLeastAnalyzedBytes = 4096;

// What the earlier state makes of the elements. Lists by bit and by byte plane begin with the most significant one.
struct ChangeFindings {
  std::uint64_t elements = 0;         // that this stands for
  double changed = 0;                 // share of those whose bits differ
  double sign_changed = 0;            // of floats and signed integers
  std::vector<double> same_bits;      // by bit, share of elements in which it is the same
  std::vector<double> xor_entropies;  // by byte plane of the XOR

  // Of dtypes that have an order; otherwise empty. By distance in representable steps (ULP): none, 1, 2 to 3, 4 to 7
  // and so on in powers of two, up to the largest that occurs.
  std::vector<double> distances;
  // Of the difference in representable steps; values that agree in their four leading bits are taken as equally likely.
  std::optional<double> delta_entropy;
  std::optional<double> delta_entropy_by_exponent;  // where the base's exponent is known; floats only
};

// What a coder makes of the elements. Whatever it cannot take or make smaller counts as it is.
struct CodedFindings {
  enum class Form : std::uint8_t { alone, on_base, planes, xor_planes };

  std::string coder;
  Form form = Form::alone;     // codecs: alone, on_base. Engines: alone (the bytes as they are), planes, xor_planes
  std::uint64_t elements = 0;  // that this stands for
  double bits = 0;             // per element
  double expressed = 0;        // share of elements that the coder could take
};

[[nodiscard]] std::string_view coded_form_name(CodedFindings::Form form) noexcept;

// How far updates of Adam move with what is made of first moments, beside their second moments as they are. As
// UpdateErrors, per element.
struct UpdateFindings {
  std::uint64_t elements = 0;  // that this stands for
  double mean = 0;
  double largest = 0;
  double mean_square = 0;
  double mean_of_updates = 0;  // as they were, by magnitude
  double mean_square_of_updates = 0;
};

// A quantizer at one of its settings: its bits against its errors.
struct QuantizerFindings {
  std::string quantizer;               // "round_mantissa", "clusters", "update_step"
  double parameter = 0;                // bits of mantissa that are kept; number of clusters; part of an update
  std::uint64_t elements = 0;          // that this stands for
  std::optional<double> nominal_bits;  // per element, as the method is published; clusters only
  double bits = 0;                     // after the codec that makes least of it; alone
  std::string codec;                   // which one; "mix" of groups whose tensors have several
  std::optional<double> bits_on_base;  // the same, base and elements quantized alike
  std::string codec_on_base;
  std::uint64_t elements_on_base = 0;
  double mean_relative = 0;  // MRE
  double max_relative = 0;
  double mean_square = 0;  // MSE
  double max_absolute = 0;
  std::optional<UpdateFindings> update;  // of first moments whose AdamNumbers are known
};

// The codec that makes least of the elements.
struct BestCodec {
  std::string codec;  // "+base" where it uses one; "mix" of groups whose tensors have several
  std::uint64_t elements = 0;
  double bits = 0;
};

// Of one tensor or of a group. Lists by bit and by byte plane begin with the most significant one.
struct Findings {
  std::uint64_t elements = 0;              // that this stands for
  std::uint64_t looked_at = 0;             // elements
  double zeros = 0;                        // share of elements that are 0, of either sign
  std::uint64_t nans = 0;                  // of the elements looked at
  std::uint64_t infinities = 0;            // of the elements looked at
  std::vector<double> ones;                // by bit, share of elements in which it is set
  std::vector<double> constant_bits;       // by bit, share of elements in whose tensor it is the same everywhere
  std::vector<double> plane_entropies;     // by byte plane
  std::optional<double> sign_entropy;      // floats only, as the next
  std::optional<double> exponent_entropy;  // of the exponent field
  std::optional<ChangeFindings> change;    // where there is an earlier state of it
  std::vector<CodedFindings> codecs;       // of bitsnap, in the order of their ids; those that express anything of it
  std::vector<CodedFindings> engines;      // as in the options
  std::optional<BestCodec> best_alone;
  std::optional<BestCodec> best_on_base;  // with or without base, whichever is less; where there is a base
  std::vector<QuantizerFindings> quantizers;
};

struct TensorAnalysis {
  // Why a tensor is not looked at.
  enum class Kind : std::uint8_t { analyzed, alias, small /* empty ones, too */, unwanted };

  std::size_t tensor = 0;  // of the state
  Kind kind = Kind::analyzed;
  Findings findings;
};

// The tensors of one role and dtype that were looked at.
struct GroupAnalysis {
  Role role = Role::other;
  DType dtype = DType::opaque;
  std::string dtype_name;
  std::uint64_t tensors = 0;
  std::uint64_t raw_bytes = 0;
  Findings findings;
};

struct Analysis {
  std::vector<TensorAnalysis> tensors;  // one for each of the state
  std::vector<GroupAnalysis> groups;    // weights first, then masters, exp_avg, exp_avg_sq, others
  std::uint64_t raw_bytes = 0;          // of all tensors, aliases not counted again
  std::uint64_t analyzed_bytes = 0;     // of the tensors that were looked at
  std::uint64_t looked_at_bytes = 0;    // of those, what was read
};

// `earlier` may be nullptr; a tensor is compared with the one of the same name there if dtype and size are the same.
[[nodiscard]] Result<Analysis> analyze_state(const AnalysisState& state, const AnalysisState* earlier,
                                             const AnalysisOptions& options = {});

}  // namespace bitsnap
