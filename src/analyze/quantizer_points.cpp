// Settings of quantizers, and what comes of them.
#include "analyze/quantizer_points.hpp"

#include <algorithm>
#include <cstring>

#include "quantize/round_mantissa.hpp"

namespace bitsnap::analyze {
namespace {

std::string coding_name(const Coding& coding) {
  return std::string(coding.encoder->decoder().name()) + (coding.on_base ? "+base" : "");
}

// A copy of the elements, quantized.
Result<ConstByteSpan> quantized(const quantize::Quantizer& quantizer, DType dtype, ConstByteSpan elements,
                                ErrorTally& errors, Scratch& scratch) {
  BITSNAP_ASSIGN(const ByteSpan out, scratch.take(elements.size()));
  std::memcpy(out.data(), elements.data(), elements.size());
  BITSNAP_TRY(quantizer.quantize(dtype, out, {}, &errors));
  return ConstByteSpan(out);
}

}  // namespace

Result<std::vector<QuantizerSetting>> sweep_of(DType dtype) {
  std::vector<QuantizerSetting> settings;
  const unsigned mantissa_bits = quantize::RoundMantissa::mantissa_bits(dtype);
  for (unsigned kept = 1; kept <= kMostKeptBits && kept < mantissa_bits; ++kept) {
    BITSNAP_ASSIGN(quantize::RoundMantissa rounding, quantize::RoundMantissa::of(dtype, kept));
    settings.push_back({std::make_shared<const quantize::RoundMantissa>(rounding), kept, std::nullopt});
  }
  return settings;
}

void QuantizerTally::add(const QuantizerTally& next) {
  errors.merge(next.errors);
  if (coded.empty()) coded.resize(next.coded.size());
  for (std::size_t i = 0; i < coded.size(); ++i) coded[i].add(next.coded[i]);
}

Result<QuantizerTally> measure_quantizer(const QuantizerSetting& setting, const RunBytes& run,
                                         std::span<const Coding> codings, Scratch& scratch) {
  const Scratch::Frame frame(scratch);
  QuantizerTally tally;
  RunBytes rounded = run;
  BITSNAP_ASSIGN(rounded.data, quantized(*setting.quantizer, run.dtype, run.data, tally.errors, scratch));
  if (!run.base.empty()) {
    ErrorTally of_base;  // nobody asks for it
    BITSNAP_ASSIGN(rounded.base, quantized(*setting.quantizer, run.dtype, run.base, of_base, scratch));
  }
  for (const Coding& coding : codings) {
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
  return findings;
}

}  // namespace bitsnap::analyze
