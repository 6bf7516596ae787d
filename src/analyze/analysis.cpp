// analyze_state(): measures the runs of a sample in parallel, and turns the tally of each tensor into findings.
//
// Three passes: one counts all runs, and codes and rounds those of coded tensors; two are for clusters, which have to
// be fitted to a tensor before they can quantize it. Each pass reads its input again, so that memory is bounded by the
// runs in flight.
#include <bitsnap/analysis.hpp>

#include <algorithm>
#include <memory>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "analyze/coded_bytes.hpp"
#include "analyze/count_findings.hpp"
#include "analyze/element_counts.hpp"
#include "analyze/quantizer_points.hpp"
#include "analyze/sample_runs.hpp"
#include "base/no_throw.hpp"
#include "base/quote_name.hpp"
#include "base/try.hpp"
#include "quantize/clusters.hpp"
#include "restore/run_control.hpp"
#include "tensor/moment_pairs.hpp"
#include "tensor/row_elements.hpp"

namespace bitsnap {
namespace analyze {
namespace {

using Kind = TensorAnalysis::Kind;
using quantize::ClusterLabels;

// The order of groups.
constexpr Role kRoleOrder[] = {Role::weight, Role::master, Role::exp_avg, Role::exp_avg_sq, Role::other};

constexpr ClusterLabels kClusterLabels[] = {ClusterLabels::four_bits, ClusterLabels::eight_bits};
constexpr double kCodeBits = 8;  // of an element, in addition to its label

// Cost of the first pass per byte, for the progress bar; a pass for clusters costs 1.
constexpr std::uint64_t kFirstPassCost = 12;

// Measurements of one run, or of all runs of a tensor.
struct Tally {
  ElementCounts elements;
  ChangeCounts changes;
  std::vector<CodedBytes> codecs;     // by coding
  std::vector<CodedBytes> baselines;  // by form
  std::vector<QuantizerTally> rounded;

  void add(const Tally& next) {
    elements.add(next.elements);
    changes.add(next.changes);
    if (codecs.empty()) codecs.resize(next.codecs.size());
    if (baselines.empty()) baselines.resize(next.baselines.size());
    if (rounded.empty()) rounded.resize(next.rounded.size());
    for (std::size_t i = 0; i < codecs.size(); ++i) codecs[i].add(next.codecs[i]);
    for (std::size_t i = 0; i < baselines.size(); ++i) baselines[i].add(next.baselines[i]);
    for (std::size_t i = 0; i < rounded.size(); ++i) rounded[i].add(next.rounded[i]);
  }
};

// What is measured on elements of one dtype.
struct Measurements {
  std::vector<Coding> codings;
  std::vector<const BaselineForm*> forms;
  std::vector<QuantizerSetting> sweep;
};

// The clusters of one tensor.
struct ClusterTally {
  std::vector<quantize::ClusterMoments> moments;  // by run, from the first pass
  std::vector<quantize::ClusterFit> fits;         // by kClusterLabels, from the second pass
  std::vector<QuantizerSetting> settings;         // by kClusterLabels
  std::vector<QuantizerTally> tallies;            // by kClusterLabels, from the third pass
};

// What is measured on first moments whose update is known.
struct UpdateMeasurements {
  AdamNumbers adam;
  std::size_t squares = 0;                          // the tensor of second moments
  std::optional<std::size_t> earlier_squares = {};  // the same in the earlier state
  std::vector<QuantizerSetting> sweep = {};
};

// The workers of one slot, made when a form first codes a run.
using Workers = std::unordered_map<const BaselineForm*, std::unique_ptr<CoderWorker>>;

class StateAnalysis {
 public:
  StateAnalysis(const AnalysisState& state, const AnalysisState* earlier, const AnalysisOptions& options)
      : state_(state),
        earlier_(earlier),
        options_(options),
        bases_(state.tensors.size()),
        forms_(baseline_forms(options.baselines)) {
    choose_tensors();
    match_bases();
    runs_ = sample_runs(state.tensors, analysis_.tensors, options.sample_bytes, options.codes_all_tensors);
    for (const SampleRun& run : runs_) {
      analysis_.looked_at_bytes += bytes_of(run);
      if (is_clustered(run)) clustered_.push_back(run);
    }
  }

  Result<Analysis> run() {
    std::uint64_t total = 0;
    for (const SampleRun& run : runs_) total += first_cost(run);
    for (const SampleRun& run : clustered_) total += 2 * bytes_of(run);
    const DecodeLimits limits;
    restore::RunControl control(options_.run, limits, total);
    for (std::size_t i = 0; i < bases_.size(); ++i) {
      if (analysis_.tensors[i].kind == Kind::analyzed) BITSNAP_TRY(prepare(state_.tensors[i].dtype));
    }
    BITSNAP_TRY(prepare_updates());
    BITSNAP_TRY(first_pass(control));
    BITSNAP_TRY(fit_clusters(control));
    BITSNAP_TRY(measure_clusters(control));
    make_groups();
    return std::move(analysis_);
  }

 private:
  [[nodiscard]] const TensorInfo& info(const SampleRun& run) const noexcept { return state_.tensors[run.tensor]; }
  [[nodiscard]] std::uint64_t bytes_of(const SampleRun& run) const noexcept {
    return run.elements * element_size(info(run).dtype);
  }
  [[nodiscard]] std::uint64_t first_cost(const SampleRun& run) const noexcept {
    return (run.is_coded ? kFirstPassCost : 1) * bytes_of(run);
  }
  [[nodiscard]] bool is_clustered(const SampleRun& run) const noexcept {
    return run.is_coded && options_.quantizers && info(run).dtype == DType::f32;
  }

  void choose_tensors() {
    for (std::size_t i = 0; i < state_.tensors.size(); ++i) {
      const TensorInfo& tensor = state_.tensors[i];
      Kind kind = Kind::analyzed;
      if (options_.wanted && !options_.wanted(tensor)) {
        kind = Kind::unwanted;
      } else if (tensor.alias_of) {
        kind = Kind::alias;
      } else if (tensor.size_bytes < kLeastAnalyzedBytes) {
        kind = Kind::small;
      }
      if (!tensor.alias_of) analysis_.raw_bytes += tensor.size_bytes;
      if (kind == Kind::analyzed) analysis_.analyzed_bytes += tensor.size_bytes;
      analysis_.tensors.push_back({i, kind, {}});
    }
  }

  void match_bases() {
    if (earlier_ == nullptr) return;
    std::unordered_map<std::string_view, std::size_t> by_name;
    for (std::size_t i = 0; i < earlier_->tensors.size(); ++i) by_name.emplace(earlier_->tensors[i].name, i);
    for (std::size_t i = 0; i < bases_.size(); ++i) {
      const TensorInfo& tensor = state_.tensors[i];
      const auto found = by_name.find(tensor.name);
      if (found == by_name.end()) continue;
      const TensorInfo& base = earlier_->tensors[found->second];
      if (base.dtype_name == tensor.dtype_name && base.size_bytes == tensor.size_bytes) bases_[i] = found->second;
    }
  }

  Result<void> prepare(DType dtype) {
    if (measurements_.contains(dtype)) return {};
    std::vector<QuantizerSetting> sweep;
    if (options_.quantizers) {
      BITSNAP_ASSIGN(sweep, sweep_of(dtype));
    }
    std::vector<const BaselineForm*> forms;
    for (const BaselineForm& form : forms_) {
      if (form.coder->accepts(dtype)) forms.push_back(&form);
    }
    measurements_.emplace(dtype, Measurements{codings_of(dtype), std::move(forms), std::move(sweep)});
    return {};
  }
  [[nodiscard]] const Measurements& measurements(const SampleRun& run) const {
    return measurements_.at(info(run).dtype);
  }

  Result<void> prepare_updates() {
    if (!options_.quantizers || !options_.adam) return {};
    const auto pairs = tensor::pair_moments(state_.tensors);
    for (std::size_t i = 0; i < pairs.size(); ++i) {
      if (!pairs[i] || analysis_.tensors[i].kind != Kind::analyzed) continue;
      const std::optional<AdamNumbers> adam = options_.adam(i);
      if (!adam) continue;
      auto sweep = sweep_of_updates(*adam);
      if (!sweep)
        return tl::unexpected(std::move(sweep).error().within("tensor " + quote_name(state_.tensors[i].name)));
      if (!sweep->empty())
        updates_.emplace(i, UpdateMeasurements{*adam, *pairs[i], bases_[*pairs[i]], std::move(*sweep)});
    }
    return {};
  }
  // nullptr if Adam's values are unknown.
  [[nodiscard]] const UpdateMeasurements* updates(const SampleRun& run) const {
    const auto found = updates_.find(run.tensor);
    return found == updates_.end() ? nullptr : &found->second;
  }

  // Settings that need no fitting, in the order of a tally.
  [[nodiscard]] std::vector<const QuantizerSetting*> settings(const SampleRun& run) const {
    std::vector<const QuantizerSetting*> all;
    for (const QuantizerSetting& setting : measurements(run).sweep) all.push_back(&setting);
    if (const UpdateMeasurements* const of_updates = updates(run)) {
      for (const QuantizerSetting& setting : of_updates->sweep) all.push_back(&setting);
    }
    return all;
  }

  Result<QuantizerTally> measure(const QuantizerSetting& setting, const SampleRun& run, const RunBytes& bytes,
                                 Scratch& scratch) const {
    const UpdateMeasurements* const of_updates = updates(run);
    return measure_quantizer(setting, bytes, of_updates == nullptr ? nullptr : &of_updates->adam,
                             measurements(run).codings, scratch);
  }

  Result<RunBytes> read(const SampleRun& run, bool with_base, Scratch& scratch) const {
    const TensorInfo& tensor = info(run);
    const std::uint64_t offset = run.first * element_size(tensor.dtype);
    const std::size_t row = tensor::row_elements(tensor.shape);
    RunBytes bytes{.dtype = tensor.dtype,
                   .data = {},
                   .base = {},
                   .rows = {row, row == 0 ? 0 : static_cast<std::size_t>(run.first % row)}};
    const auto read_of = [&](const AnalysisState& state, std::size_t number) -> Result<ConstByteSpan> {
      BITSNAP_ASSIGN(const ByteSpan out, scratch.take(bytes_of(run)));
      BITSNAP_TRY(state.read(number, offset, out));
      return ConstByteSpan(out);
    };
    BITSNAP_ASSIGN(bytes.data, read_of(state_, run.tensor));
    if (with_base && bases_[run.tensor]) {
      BITSNAP_ASSIGN(bytes.base, read_of(*earlier_, *bases_[run.tensor]));
    }
    if (const UpdateMeasurements* const of_updates = updates(run); of_updates != nullptr && run.is_coded) {
      BITSNAP_ASSIGN(bytes.squares, read_of(state_, of_updates->squares));
      if (!bytes.base.empty() && of_updates->earlier_squares) {
        BITSNAP_ASSIGN(bytes.base_squares, read_of(*earlier_, *of_updates->earlier_squares));
      }
    }
    return bytes;
  }

  Result<Tally> measure(const SampleRun& run, const RunBytes& bytes, restore::RunControl& control, Workers& workers,
                        Scratch& scratch) const {
    const Measurements& measured = measurements(run);
    Tally tally;
    BITSNAP_ASSIGN(tally.elements, count_elements(bytes.dtype, bytes.data, scratch));
    if (!bytes.base.empty()) {
      BITSNAP_ASSIGN(tally.changes, count_changes(bytes.dtype, bytes.data, bytes.base, scratch));
    }
    if (!run.is_coded) return tally;
    for (const Coding& coding : measured.codings) {
      BITSNAP_ASSIGN(const CodedBytes coded, measure_codec(coding, bytes, scratch));
      tally.codecs.push_back(coded);
    }
    for (const BaselineForm* const form : measured.forms) {
      BITSNAP_TRY(control.check_cancelled());
      std::unique_ptr<CoderWorker>& worker = workers[form];
      if (worker == nullptr) worker = form->coder->make_worker();
      BITSNAP_ASSIGN(const CodedBytes coded, measure_baseline(*form, *worker, bytes, scratch));
      tally.baselines.push_back(coded);
    }
    for (const QuantizerSetting* const setting : settings(run)) {
      BITSNAP_TRY(control.check_cancelled());
      BITSNAP_ASSIGN(QuantizerTally rounded, measure(*setting, run, bytes, scratch));
      tally.rounded.push_back(std::move(rounded));
    }
    return tally;
  }

  Result<void> first_pass(restore::RunControl& control) {
    std::vector<Tally> tallies(control.slots());
    std::vector<Workers> workers(control.slots());
    std::vector<quantize::ClusterMoments> moments(control.slots());
    Tally of_tensor;
    const auto work = [&](std::size_t item, std::size_t slot) -> Result<void> {
      Scratch& scratch = control.context(slot).scratch();
      const SampleRun& run = runs_[item];
      BITSNAP_ASSIGN(const RunBytes bytes, read(run, true, scratch));
      BITSNAP_ASSIGN(tallies[slot], measure(run, bytes, control, workers[slot], scratch));
      if (is_clustered(run)) moments[slot] = quantize::cluster_moments(bytes.data);
      return {};
    };
    const auto commit = [&](std::size_t item, std::size_t slot) -> Result<void> {
      const SampleRun& run = runs_[item];
      of_tensor.add(tallies[slot]);
      if (is_clustered(run)) clusters_[run.tensor].moments.push_back(moments[slot]);
      if (item + 1 == runs_.size() || runs_[item + 1].tensor != run.tensor) {
        set_tensor_findings(run, of_tensor);
        of_tensor = {};
      }
      control.add(first_cost(run));
      return {};
    };
    return control.executor().run_ordered(runs_.size(), control.slots(), work, commit, &control.cancel());
  }

  // Precondition: the tally has all runs of the tensor.
  void set_tensor_findings(const SampleRun& run, const Tally& tally) {
    const TensorInfo& tensor = info(run);
    const Measurements& measured = measurements(run);
    const std::uint64_t elements = tensor.element_count();
    const std::size_t element_bytes = element_size(tensor.dtype);
    Findings& findings = analysis_.tensors[run.tensor].findings;
    set_findings(tally.elements, tensor.dtype, elements, findings);
    if (tally.changes.elements > 0) findings.change = make_findings(tally.changes, tensor.dtype, elements);
    if (!run.is_coded) return;
    const auto add = [&](std::vector<CodedFindings>& list, std::string_view name, CodedFindings::Form form,
                         const CodedBytes& coded) {
      if (coded.expressed == 0) return;
      list.push_back({std::string(name), form, elements, coded.bits(),
                      static_cast<double>(coded.expressed) / static_cast<double>(coded.elements)});
    };
    for (std::size_t i = 0; i < measured.codings.size(); ++i) {
      const Coding& coding = measured.codings[i];
      add(findings.codecs, coding.encoder->decoder().name(),
          coding.on_base ? CodedFindings::Form::on_base : CodedFindings::Form::alone, tally.codecs[i]);
    }
    for (std::size_t i = 0; i < measured.forms.size(); ++i) {
      add(findings.baselines, measured.forms[i]->name, measured.forms[i]->form, tally.baselines[i]);
    }
    findings.best_alone = best_of(tally.codecs, measured.codings, false, element_bytes, elements);
    findings.best_on_base = best_of(tally.codecs, measured.codings, true, element_bytes, elements);
    const std::vector<const QuantizerSetting*> swept = settings(run);
    for (std::size_t i = 0; i < swept.size(); ++i) {
      findings.quantizers.push_back(
          make_findings(*swept[i], tally.rounded[i], measured.codings, element_bytes, elements));
    }
  }

  Result<void> fit_clusters(restore::RunControl& control) {
    for (auto& [tensor, clusters] : clusters_) {
      for (const ClusterLabels labels : kClusterLabels) clusters.fits.emplace_back(labels, clusters.moments);
    }
    std::vector<std::vector<quantize::ClusterFit>> fits(control.slots());
    const auto work = [&](std::size_t item, std::size_t slot) -> Result<void> {
      BITSNAP_ASSIGN(const RunBytes bytes, read(clustered_[item], false, control.context(slot).scratch()));
      const std::vector<quantize::ClusterMoments>& moments = clusters_.at(clustered_[item].tensor).moments;
      fits[slot].clear();
      for (const ClusterLabels labels : kClusterLabels) fits[slot].emplace_back(labels, moments).add(bytes.data);
      return {};
    };
    const auto commit = [&](std::size_t item, std::size_t slot) -> Result<void> {
      std::vector<quantize::ClusterFit>& all = clusters_.at(clustered_[item].tensor).fits;
      for (std::size_t i = 0; i < all.size(); ++i) all[i].merge(fits[slot][i]);
      control.add(bytes_of(clustered_[item]));
      return {};
    };
    return control.executor().run_ordered(clustered_.size(), control.slots(), work, commit, &control.cancel());
  }

  // Without a base: it would have clusters of its own.
  Result<void> measure_clusters(restore::RunControl& control) {
    for (auto& [tensor, clusters] : clusters_) {
      for (std::size_t i = 0; i < clusters.fits.size(); ++i) {
        const auto label_bits = static_cast<unsigned>(kClusterLabels[i]);
        clusters.settings.push_back({std::make_shared<const quantize::Clusters>(clusters.fits[i].clusters()),
                                     static_cast<double>(1U << label_bits), label_bits + kCodeBits});
      }
      clusters.tallies.resize(clusters.settings.size());
    }
    std::vector<std::vector<QuantizerTally>> tallies(control.slots());
    const auto work = [&](std::size_t item, std::size_t slot) -> Result<void> {
      Scratch& scratch = control.context(slot).scratch();
      const SampleRun& run = clustered_[item];
      BITSNAP_ASSIGN(const RunBytes bytes, read(run, false, scratch));
      tallies[slot].clear();
      for (const QuantizerSetting& setting : clusters_.at(run.tensor).settings) {
        BITSNAP_ASSIGN(QuantizerTally tally, measure(setting, run, bytes, scratch));
        tallies[slot].push_back(std::move(tally));
      }
      return {};
    };
    const auto commit = [&](std::size_t item, std::size_t slot) -> Result<void> {
      std::vector<QuantizerTally>& all = clusters_.at(clustered_[item].tensor).tallies;
      for (std::size_t i = 0; i < all.size(); ++i) all[i].add(tallies[slot][i]);
      control.add(bytes_of(clustered_[item]));
      return {};
    };
    BITSNAP_TRY(control.executor().run_ordered(clustered_.size(), control.slots(), work, commit, &control.cancel()));
    for (const auto& [number, clusters] : clusters_) {
      const TensorInfo& tensor = state_.tensors[number];
      for (std::size_t i = 0; i < clusters.settings.size(); ++i) {
        analysis_.tensors[number].findings.quantizers.push_back(
            make_findings(clusters.settings[i], clusters.tallies[i], measurements_.at(tensor.dtype).codings,
                          element_size(tensor.dtype), tensor.element_count()));
      }
    }
    return {};
  }

  void make_groups() {
    for (const Role role : kRoleOrder) {
      const std::size_t first = analysis_.groups.size();
      for (const TensorAnalysis& one : analysis_.tensors) {
        const TensorInfo& tensor = state_.tensors[one.tensor];
        if (one.kind != Kind::analyzed || tensor.role != role) continue;
        auto group = std::find_if(analysis_.groups.begin() + static_cast<std::ptrdiff_t>(first), analysis_.groups.end(),
                                  [&](const GroupAnalysis& own) { return own.dtype_name == tensor.dtype_name; });
        if (group == analysis_.groups.end()) {
          analysis_.groups.push_back({role, tensor.dtype, tensor.dtype_name, 0, 0, {}});
          group = analysis_.groups.end() - 1;
        }
        ++group->tensors;
        group->raw_bytes += tensor.size_bytes;
        merge_findings(group->findings, one.findings);
      }
    }
  }

  const AnalysisState& state_;
  const AnalysisState* earlier_;
  const AnalysisOptions& options_;
  std::vector<std::optional<std::size_t>> bases_;  // by tensor, the earlier state's tensor
  std::vector<BaselineForm> forms_;                // all forms of all baselines
  std::vector<SampleRun> runs_;
  std::vector<SampleRun> clustered_;  // the runs that can be clustered
  std::unordered_map<DType, Measurements> measurements_;
  std::unordered_map<std::size_t, UpdateMeasurements> updates_;  // by tensor of first moments
  std::unordered_map<std::size_t, ClusterTally> clusters_;       // by tensor
  Analysis analysis_;
};

}  // namespace
}  // namespace analyze

Result<Analysis> analyze_state(const AnalysisState& state, const AnalysisState* earlier,
                               const AnalysisOptions& options) {
  return no_throw("analyze", [&] { return analyze::StateAnalysis(state, earlier, options).run(); });
}

}  // namespace bitsnap
