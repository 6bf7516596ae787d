// The findings of `analyze` as JSON.
#include <cmath>
#include <optional>
#include <string_view>

#include <bitsnap/version.hpp>

#include "cli/analyze_report.hpp"
#include "cli/losses.hpp"
#include "cli/number_option.hpp"

namespace bitsnap::cli {

namespace {

template <typename T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json();
}

// The first part of a name that is a number: 12 for "model.layers.12.mlp.weight".
std::optional<std::uint64_t> layer_of(std::string_view name) {
  while (!name.empty()) {
    const std::size_t end = name.find_first_of("./");
    if (const auto number = parse_decimal(name.substr(0, end))) {
      return number;
    }
    name.remove_prefix(end == std::string_view::npos ? name.size() : end + 1);
  }
  return std::nullopt;
}

Json place_json(const std::optional<StatePlace>& place) {
  if (!place) {
    return {};
  }
  return {{"path", place->path}, {"step", place->run ? or_null(place->run->step) : Json()}};
}

Json change_json(const ChangeFindings& change) {
  Json distances = Json::array();
  for (std::size_t i = 0; i < change.distances.size(); ++i) {
    const std::uint64_t least = i == 0 ? 0 : std::uint64_t{1} << (i - 1);
    distances.push_back({{"from", least}, {"to", i == 0 ? 0 : least - 1 + least}, {"share", change.distances[i]}});
  }
  return {{"elements", change.elements},
          {"changed", change.changed},
          {"sign_changed", change.sign_changed},
          {"ulp", std::move(distances)}};
}

Json coded_json(const std::vector<CodedFindings>& list) {
  Json array = Json::array();
  for (const CodedFindings& coded : list) {
    array.push_back({{"name", coded.coder},
                     {"form", coded_form_name(coded.form)},
                     {"bits", coded.bits},
                     {"elements", coded.elements},
                     {"expressed", coded.expressed}});
  }
  return array;
}

Json best_json(const std::optional<BestCodec>& best) {
  return best ? Json{{"codec", best->codec}, {"bits", best->bits}, {"elements", best->elements}} : Json();
}

// Whole numbers (bits, clusters) as integers.
Json parameter_json(double parameter) {
  return parameter == std::floor(parameter) ? Json(static_cast<std::uint64_t>(parameter)) : Json(parameter);
}

Json update_json(const std::optional<UpdateFindings>& update) {
  return !update ? Json()
                 : Json{{"elements", update->elements},
                        {"mean", update->mean},
                        {"largest", update->largest},
                        {"mean_square", update->mean_square},
                        {"mean_of_updates", update->mean_of_updates},
                        {"mean_square_of_updates", update->mean_square_of_updates}};
}

Json quantizers_json(const std::vector<QuantizerFindings>& points) {
  Json array = Json::array();
  for (const QuantizerFindings& point : points) {
    array.push_back({{"name", point.quantizer},
                     {"parameter", parameter_json(point.parameter)},
                     {"nominal_bits", or_null(point.nominal_bits)},
                     {"bits", point.bits},
                     {"codec", point.codec},
                     {"bits_on_base", or_null(point.bits_on_base)},
                     {"codec_on_base", point.bits_on_base ? Json(point.codec_on_base) : Json()},
                     {"mean_relative_error", point.mean_relative},
                     {"max_relative_error", point.max_relative},
                     {"mean_square_error", point.mean_square},
                     {"max_absolute_error", point.max_absolute},
                     {"update", update_json(point.update)},
                     {"elements", point.elements}});
  }
  return array;
}

void add_findings(Json& object, const Findings& findings, bool with_details) {
  const ChangeFindings* change = findings.change ? &*findings.change : nullptr;
  object["elements"] = findings.elements;
  object["looked_at"] = findings.looked_at;
  object["zeros"] = findings.zeros;
  object["nans"] = findings.nans;
  object["infinities"] = findings.infinities;
  object["change"] = change == nullptr ? Json() : change_json(*change);
  object["best"] = {{"alone", best_json(findings.best_alone)}, {"base", best_json(findings.best_on_base)}};
  if (!with_details) {
    return;
  }
  object["bits"] = {{"ones", findings.ones},
                    {"constant", findings.constant_bits},
                    {"same", change == nullptr ? Json() : Json(change->same_bits)}};
  object["entropy"] = {{"sign", or_null(findings.sign_entropy)},
                       {"exponent", or_null(findings.exponent_entropy)},
                       {"planes", findings.plane_entropies},
                       {"xor_planes", change == nullptr ? Json() : Json(change->xor_entropies)},
                       {"delta", change == nullptr ? Json() : or_null(change->delta_entropy)},
                       {"delta_by_exponent", change == nullptr ? Json() : or_null(change->delta_entropy_by_exponent)}};
  object["codecs"] = coded_json(findings.codecs);
  object["baselines"] = coded_json(findings.baselines);
  object["quantizers"] = quantizers_json(findings.quantizers);
}

void add_stored(Json& object, const StoredPart* stored) {
  object["stored_bytes"] = stored == nullptr ? Json() : Json(stored->stored_bytes);
  object["ratio"] = stored == nullptr ? Json() : ratio_json(stored->raw_bytes, stored->stored_bytes);
}

Json group_json(const GroupAnalysis& group, const std::optional<StoredPart>& stored) {
  Json object = {{"role", role_name(group.role)},
                 {"dtype", group.dtype_name},
                 {"tensors", group.tensors},
                 {"raw_bytes", group.raw_bytes}};
  add_stored(object, stored ? &*stored : nullptr);
  add_findings(object, group.findings, true);
  return object;
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
  Json object = to_json(info);
  object["layer"] = or_null(layer_of(info.name));
  const auto stored = report.stored.find(tensor.tensor);
  add_stored(object, stored == report.stored.end() ? nullptr : &stored->second);
  object["codec"] = stored == report.stored.end() ? Json() : Json(stored->second.codec);
  object["skipped"] = tensor.kind == TensorAnalysis::Kind::analyzed ? Json() : Json(kind_name(tensor.kind));
  if (tensor.kind == TensorAnalysis::Kind::analyzed) {
    add_findings(object, tensor.findings, with_details);
  }
  return object;
}

Json state_json(const StateReport& report, bool with_details) {
  const Analysis& analysis = report.analysis;
  Json object = place_json(report.state);
  object["against"] = place_json(report.earlier);
  object["raw_bytes"] = report.analysis.raw_bytes;
  object["stored_bytes"] = or_null(report.stored_bytes);
  object["ratio"] = report.stored_bytes ? ratio_json(report.analysis.raw_bytes, *report.stored_bytes) : Json();
  object["analyzed_bytes"] = analysis.analyzed_bytes;
  object["looked_at_bytes"] = analysis.looked_at_bytes;
  object["adam"] = report.adam ? to_json(*report.adam) : Json();
  object["roles"] = Json::array();
  for (std::size_t i = 0; i < analysis.groups.size(); ++i) {
    object["roles"].push_back(group_json(analysis.groups[i], report.groups[i]));
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
  Json document = {{"version", version()}, {"limit_bytes", or_null(limit_bytes)}, {"states", Json::array()}};
  for (const StateReport& report : reports) {
    document["states"].push_back(state_json(report, with_details));
  }
  return document;
}

}  // namespace bitsnap::cli
