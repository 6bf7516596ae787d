// Parameters of quantizers, and measurements with them.
#include "analyze/quantizer_points.hpp"

#include <algorithm>
#include <cstring>

#include "base/try.hpp"
#include "quantize/round_mantissa.hpp"
#include "quantize/update_errors.hpp"
#include "quantize/update_step.hpp"

namespace bitsnap::analyze {
namespace {

constexpr double kUpdateSteps[] = {0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2};

std::string coding_name(const Coding& coding) {
  return std::string(coding.encoder->decoder().name()) + (coding.on_base ? "+base" : "");
}

// A copy of the elements, quantized.
Result<ConstByteSpan> quantized(const QuantizerSetting& setting, DType dtype, ConstByteSpan elements,
                                ConstByteSpan squares, ErrorTally& errors, Scratch& scratch) {
  BITSNAP_ASSIGN(const ByteSpan out, scratch.take(elements.size()));
  std::memcpy(out.data(), elements.data(), elements.size());
  const quantize::Beside beside{.dtype = dtype, .bytes = squares};
  BITSNAP_TRY(setting.quantizer->quantize(dtype, out, {&beside, setting.lattice ? 1U : 0U}, &errors));
  return ConstByteSpan(out);
}

}  // namespace

Result<std::vector<QuantizerSetting>> sweep_of(DType dtype) {
  std::vector<QuantizerSetting> settings;
  const unsigned mantissa_bits = quantize::RoundMantissa::mantissa_bits(dtype);
  for (unsigned kept = 1; kept <= kMostKeptBits && kept < mantissa_bits; ++kept) {
    BITSNAP_ASSIGN(quantize::RoundMantissa rounding, quantize::RoundMantissa::of(dtype, kept));
    settings.push_back({std::make_shared<const quantize::RoundMantissa>(rounding), static_cast<double>(kept)});
  }
  return settings;
}

Result<std::vector<QuantizerSetting>> sweep_of_updates(const AdamNumbers& adam) {
  std::vector<QuantizerSetting> settings;
  if (adam.step == 0) return settings;
  for (const double step : kUpdateSteps) {
    BITSNAP_ASSIGN(const auto made, quantize::UpdateStep::of(quantize::parameters_of(adam, step)));
    settings.push_back({std::make_shared<const quantize::UpdateStep>(made), step, std::nullopt, made.lattice()});
  }
  return settings;
}

void QuantizerTally::add(const QuantizerTally& next) {
  errors.merge(next.errors);
  quantize::merge(updates, next.updates);
  if (coded.empty()) coded.resize(next.coded.size());
  for (std::size_t i = 0; i < coded.size(); ++i) coded[i].add(next.coded[i]);
}

Result<QuantizerTally> measure_quantizer(const QuantizerSetting& setting, const RunBytes& run, const AdamNumbers* adam,
                                         std::span<const Coding> codings, Scratch& scratch) {
  const Scratch::Frame frame(scratch);
  QuantizerTally tally;
  RunBytes rounded = run;
  rounded.lattice = setting.lattice;
  BITSNAP_ASSIGN(rounded.data, quantized(setting, run.dtype, run.data, run.squares, tally.errors, scratch));
  if (setting.lattice && run.base_squares.empty()) rounded.base = {};
  if (!rounded.base.empty()) {
    ErrorTally ignored;
    BITSNAP_ASSIGN(rounded.base, quantized(setting, run.dtype, run.base, run.base_squares, ignored, scratch));
  }
  if (adam != nullptr) {
    tally.updates = quantize::update_errors(*adam, {run.data, run.squares}, {rounded.data, run.squares});
  }
  for (const Coding& coding : codings) {
    // Only `scaled_by` stores multiples of an update step smaller than other floats, so that other codecs are skipped.
    if (setting.lattice && !coding.beside_squares) {
      tally.coded.push_back({});
      continue;
    }
    BITSNAP_ASSIGN(const CodedBytes coded, measure_codec(coding, rounded, scratch));
    tally.coded.push_back(coded);
  }
  return tally;
}

std::optional<BestCodec> best_of(std::span<const CodedBytes> coded, std::span<const Coding> codings, bool on_base,
                                 std::size_t element_bytes, std::uint64_t elements) {
  BestCodec best{"raw", elements, 8.0 * static_cast<double>(element_bytes)};
  bool any_on_base = false;
  for (std::size_t i = 0; i < codings.size(); ++i) {
    if (coded[i].elements == 0 || (codings[i].on_base && !on_base)) continue;
    any_on_base = any_on_base || codings[i].on_base;
    if (coded[i].bits() >= best.bits) continue;
    best.bits = coded[i].bits();
    best.codec = coding_name(codings[i]);
  }
  if (on_base && !any_on_base) return std::nullopt;
  return best;
}

QuantizerFindings make_findings(const QuantizerSetting& setting, const QuantizerTally& tally,
                                std::span<const Coding> codings, std::size_t element_bytes, std::uint64_t elements) {
  QuantizerFindings findings;
  findings.quantizer = setting.quantizer->name();
  findings.parameter = setting.parameter;
  findings.elements = elements;
  findings.nominal_bits = setting.nominal_bits;
  if (auto best = best_of(tally.coded, codings, false, element_bytes, elements)) {
    findings.bits = best->bits;
    findings.codec = std::move(best->codec);
  }
  if (auto best = best_of(tally.coded, codings, true, element_bytes, elements)) {
    findings.bits_on_base = best->bits;
    findings.codec_on_base = std::move(best->codec);
    findings.elements_on_base = elements;
  }
  findings.mean_relative = tally.errors.mean_relative();
  findings.max_relative = tally.errors.max_relative;
  findings.mean_square = tally.errors.mean_square();
  findings.max_absolute = tally.errors.max_absolute;
  if (const UpdateErrors& updates = tally.updates; updates.elements > 0) {
    const auto mean = [&](double sum) { return sum / static_cast<double>(updates.elements); };
    findings.update = {.elements = elements,
                       .mean = mean(updates.sum),
                       .largest = updates.largest,
                       .mean_square = mean(updates.sum_square),
                       .mean_of_updates = mean(updates.sum_update),
                       .mean_square_of_updates = mean(updates.sum_update_square)};
  }
  return findings;
}

}  // namespace bitsnap::analyze
