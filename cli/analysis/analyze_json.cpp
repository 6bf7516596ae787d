// The findings of `analyze` as JSON.
#include <cmath>
#include <optional>
#include <string_view>

#include <bitsnap/version.hpp>

#include "cli/analysis/analyze_report.hpp"
#include "cli/number_option.hpp"
#include "cli/output/losses.hpp"

namespace bitsnap {

static void to_json(cli::Json& json, const ChangeFindings& change) {
  json = {{"elements", change.elements}, {"changed", change.changed}, {"sign_changed", change.sign_changed}};
  cli::Json& distances = json["ulp"] = cli::Json::array();
  for (std::size_t i = 0; i < change.distances.size(); ++i) {
    const std::uint64_t least = i == 0 ? 0 : std::uint64_t{1} << (i - 1);
    distances.push_back({{"from", least}, {"to", i == 0 ? 0 : least - 1 + least}, {"share", change.distances[i]}});
  }
}

static void to_json(cli::Json& json, const CodedFindings& coded) {
  json = {{"name", coded.coder},
          {"form", coded_form_name(coded.form)},
          {"bits", coded.bits},
          {"elements", coded.elements},
          {"expressed", coded.expressed}};
}

static void to_json(cli::Json& json, const BestCodec& best) {
  json = {{"codec", best.codec}, {"bits", best.bits}, {"elements", best.elements}};
}

static void to_json(cli::Json& json, const UpdateFindings& update) {
  json = {{"elements", update.elements},
          {"mean", update.mean},
          {"largest", update.largest},
          {"mean_square", update.mean_square},
          {"mean_of_updates", update.mean_of_updates},
          {"mean_square_of_updates", update.mean_square_of_updates}};
}

static void to_json(cli::Json& json, const QuantizerFindings& point) {
  const bool is_whole = point.parameter == std::floor(point.parameter);  // bits, clusters
  json = {{"name", point.quantizer},
          {"parameter", is_whole ? cli::Json(static_cast<std::uint64_t>(point.parameter)) : cli::Json(point.parameter)},
          {"nominal_bits", point.nominal_bits},
          {"bits", point.bits},
          {"codec", point.codec},
          {"bits_on_base", point.bits_on_base},
          {"codec_on_base", point.bits_on_base ? cli::Json(point.codec_on_base) : cli::Json()},
          {"mean_relative", point.mean_relative},
          {"max_relative", point.max_relative},
          {"mean_square", point.mean_square},
          {"max_absolute", point.max_absolute},
          {"update", point.update},
          {"elements", point.elements}};
}

}  // namespace bitsnap

namespace bitsnap::cli {

namespace {

// The first part of a name that is a number: 12 for "model.layers.12.mlp.weight".
std::optional<std::uint64_t> layer_of(std::string_view name) {
  while (!name.empty()) {
    const std::size_t end = name.find_first_of("./");
    if (const auto number = parse_decimal(name.substr(0, end))) return number;
    name.remove_prefix(end == std::string_view::npos ? name.size() : end + 1);
  }
  return std::nullopt;
}

Json place_json(const StatePlace& place) {
  return {{"path", place.path}, {"step", place.run ? Json(place.run->step) : Json()}};
}

void add_findings(Json& object, const Findings& findings, bool with_details) {
  const auto& change = findings.change;
  object["elements"] = findings.elements;
  object["looked_at"] = findings.looked_at;
  object["zeros"] = findings.zeros;
  object["nans"] = findings.nans;
  object["infinities"] = findings.infinities;
  object["change"] = change;
  object["best"] = {{"alone", findings.best_alone}, {"base", findings.best_on_base}};
  if (!with_details) return;
  object["bits"] = {{"ones", findings.ones},
                    {"constant", findings.constant_bits},
                    {"same", change ? Json(change->same_bits) : Json()}};
  object["entropy"] = {{"sign", findings.sign_entropy},
                       {"exponent", findings.exponent_entropy},
                       {"planes", findings.plane_entropies},
                       {"xor_planes", change ? Json(change->xor_entropies) : Json()},
                       {"delta", change ? Json(change->delta_entropy) : Json()},
                       {"delta_by_exponent", change ? Json(change->delta_entropy_by_exponent) : Json()}};
  object["codecs"] = findings.codecs;
  object["baselines"] = findings.baselines;
  object["quantizers"] = findings.quantizers;
}

// nullptr: unknown.
void add_stored(Json& object, const StreamSizes* stored) {
  object["stored_bytes"] = stored == nullptr ? Json() : Json(stored->stored_bytes);
  object["ratio"] = stored == nullptr ? Json() : ratio_json(stored->raw_bytes, stored->stored_bytes);
}

std::string_view kind_name(TensorAnalysis::Kind kind) {
  switch (kind) {
    case TensorAnalysis::Kind::analyzed: return "analyzed";
    case TensorAnalysis::Kind::alias: return "alias";
    case TensorAnalysis::Kind::small: return "small";
    case TensorAnalysis::Kind::unwanted: return "unwanted";
  }
  return "unknown";
}

Json tensor_json(const StateReport& report, const TensorAnalysis& tensor, bool with_details) {
  const TensorInfo& info = report.tensors[tensor.tensor];
  const bool is_analyzed = tensor.kind == TensorAnalysis::Kind::analyzed;
  Json object = info;
  object["layer"] = layer_of(info.name);
  const auto stored = report.stored.find(tensor.tensor);
  const StreamSizes* const sizes = stored == report.stored.end() ? nullptr : &stored->second;
  add_stored(object, sizes);
  object["codec"] = sizes == nullptr ? Json() : Json(sizes->codec());
  object["skipped"] = is_analyzed ? Json() : Json(kind_name(tensor.kind));
  if (is_analyzed) add_findings(object, tensor.findings, with_details);
  return object;
}

Json state_json(const StateReport& report, bool with_details) {
  const Analysis& analysis = report.analysis;
  Json object = place_json(report.state);
  object["against"] = report.earlier ? place_json(*report.earlier) : Json();
  object["raw_bytes"] = analysis.raw_bytes;
  object["stored_bytes"] = report.stored_bytes;
  object["ratio"] = report.stored_bytes ? ratio_json(analysis.raw_bytes, *report.stored_bytes) : Json();
  object["analyzed_bytes"] = analysis.analyzed_bytes;
  object["looked_at_bytes"] = analysis.looked_at_bytes;
  object["adam"] = report.adam;
  object["roles"] = Json::array();
  for (std::size_t i = 0; i < analysis.groups.size(); ++i) {
    const GroupAnalysis& group = analysis.groups[i];
    Json& role = object["roles"].emplace_back(Json{{"role", role_name(group.role)},
                                                   {"dtype", group.dtype_name},
                                                   {"tensors", group.tensors},
                                                   {"raw_bytes", group.raw_bytes}});
    add_stored(role, report.stored_bytes ? &report.groups[i] : nullptr);
    add_findings(role, group.findings, true);
  }
  object["tensors"] = Json::array();
  for (const TensorAnalysis& tensor : analysis.tensors) {
    if (tensor.kind != TensorAnalysis::Kind::unwanted) {
      object["tensors"].push_back(tensor_json(report, tensor, with_details));
    }
  }
  return object;
}

}  // namespace

Json analysis_json(const std::vector<StateReport>& reports, std::optional<std::uint64_t> limit_bytes,
                   bool with_details) {
  Json document = {{"version", version()}, {"limit_bytes", limit_bytes}, {"states", Json::array()}};
  for (const StateReport& report : reports) document["states"].push_back(state_json(report, with_details));
  return document;
}

}  // namespace bitsnap::cli
