// Sizes of runs by codec and baseline.
#include "analyze/coded_bytes.hpp"

#include <algorithm>

#include "codec/builtin_codecs.hpp"
#include "codec/registry_encode.hpp"

namespace bitsnap {

std::string_view coded_form_name(CodedFindings::Form form) noexcept {
  switch (form) {
    case CodedFindings::Form::alone: return "alone";
    case CodedFindings::Form::on_base: return "base";
    case CodedFindings::Form::planes: return "planes";
    case CodedFindings::Form::xor_planes: return "xor+planes";
  }
  return "unknown";
}

namespace analyze {
namespace {

using Form = CodedFindings::Form;

CodedBytes coded(const RunBytes& run, std::optional<std::size_t> size) noexcept {
  if (!size) return {run.elements(), 0, run.data.size()};
  return {run.elements(), run.elements(), std::min(*size, run.data.size())};
}

}  // namespace

std::vector<Coding> codings_of(DType dtype) {
  std::vector<Coding> codings;
  const codec::Input base{.kind = codec::InputKind::base, .dtype = dtype, .bytes = {}};
  for (const codec::Encoder* encoder : codec::all_encoders()) {
    if (encoder->decoder().id() == codec::CodecId::raw) continue;
    for (const bool on_base : {false, true}) {
      if (encoder->decoder().accepts(dtype, {&base, on_base ? 1U : 0U})) codings.push_back({encoder, on_base, false});
    }
  }
  if (dtype == DType::f32) {
    for (const bool on_base : {false, true}) codings.push_back({&codec::scaled_by_encoder(), on_base, true});
  }
  return codings;
}

std::vector<BaselineForm> baseline_forms(std::span<const std::shared_ptr<const Coder>> baselines) {
  std::vector<BaselineForm> forms;
  for (const std::shared_ptr<const Coder>& coder : baselines) {
    forms.push_back({coder->name(), Form::alone, coder});
    forms.push_back({coder->name(), Form::planes, make_plane_coder(coder, BytePlanes::plain)});
    forms.push_back({coder->name(), Form::xor_planes, make_plane_coder(coder, BytePlanes::of_xor)});
  }
  return forms;
}

Result<CodedBytes> measure_codec(const Coding& coding, const RunBytes& run, Scratch& scratch) {
  if ((coding.on_base && run.base.empty()) || (coding.beside_squares && !run.lattice)) return CodedBytes{};
  const Scratch::Frame frame(scratch);
  const codec::Input all_inputs[] = {{.kind = codec::InputKind::base, .dtype = run.dtype, .bytes = run.base},
                                     {.kind = codec::InputKind::peer, .dtype = run.dtype, .bytes = run.squares}};
  const std::size_t first = coding.on_base ? 0 : 1;
  const std::size_t end = coding.beside_squares ? 2 : 1;
  const codec::EncodeContext context{
      {.dtype = run.dtype, .elements = run.elements(), .inputs = std::span(all_inputs).subspan(first, end - first)},
      run.rows,
      run.lattice};
  BITSNAP_ASSIGN(const ByteSpan out, scratch.take(coding.encoder->max_encoded_size(run.dtype, run.elements())));
  BITSNAP_ASSIGN(const std::optional<std::size_t> size, coding.encoder->encode(run.data, context, out, scratch));
  return coded(run, size);
}

Result<CodedBytes> measure_baseline(const BaselineForm& form, CoderWorker& worker, const RunBytes& run,
                                    Scratch& scratch) {
  if (form.coder->uses_base() && run.base.empty()) return CodedBytes{};
  const Scratch::Frame frame(scratch);
  BITSNAP_ASSIGN(const ByteSpan out, scratch.take(form.coder->max_encoded_size(run.dtype, run.elements())));
  BITSNAP_ASSIGN(const std::optional<std::size_t> size,
                 worker.encode({.dtype = run.dtype, .data = run.data, .base = run.base}, out));
  return coded(run, size);
}

}  // namespace analyze
}  // namespace bitsnap
