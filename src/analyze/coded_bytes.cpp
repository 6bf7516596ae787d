// Sizes of what coders write.
#include "analyze/coded_bytes.hpp"

#include <algorithm>
#include <array>

#include "codec/builtin_codecs.hpp"
#include "codec/registry_encode.hpp"
#include "entropy/planes.hpp"

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

// One plane behind the other.
Result<ConstByteSpan> planes_of(const RunBytes& run, ConstByteSpan base, Scratch& scratch) {
  const std::size_t element_bytes = element_size(run.dtype);
  BITSNAP_ASSIGN(const ByteSpan out, scratch.take(run.data.size()));
  std::array<std::byte*, entropy::kMaxElementSize> planes{};
  for (std::size_t i = 0; i < element_bytes; ++i) planes[i] = out.data() + i * run.elements();
  if (base.empty()) {
    entropy::split_planes(run.data.data(), run.elements(), element_bytes, planes.data());
  } else {
    entropy::xor_split_planes(run.data.data(), base.data(), run.elements(), element_bytes, planes.data());
  }
  return ConstByteSpan(out);
}

CodedBytes coded(const RunBytes& run, std::uint64_t bytes) noexcept {
  return {run.elements(), run.elements(), std::min<std::uint64_t>(bytes, run.data.size())};
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

std::vector<EngineForm> engine_forms(std::span<const AnalysisEngine> engines, DType dtype) {
  std::vector<EngineForm> forms;
  for (const AnalysisEngine& engine : engines) {
    forms.push_back({&engine, Form::alone});
    if (element_size(dtype) > 1) forms.push_back({&engine, Form::planes});
    forms.push_back({&engine, Form::xor_planes});
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
  const codec::ChunkContext context{.dtype = run.dtype,
                                    .elements = run.elements(),
                                    .inputs = std::span(all_inputs).subspan(first, end - first),
                                    .parameters = {},
                                    .rows = run.rows,
                                    .lattice = run.lattice};
  BITSNAP_ASSIGN(const ByteSpan out, scratch.take(coding.encoder->max_encoded_size(run.dtype, run.elements())));
  BITSNAP_ASSIGN(const std::optional<std::size_t> size, coding.encoder->encode(run.data, context, out, scratch));
  return size ? coded(run, *size) : CodedBytes{run.elements(), 0, run.data.size()};
}

Result<CodedBytes> measure_engine(const EngineForm& form, const RunBytes& run, Scratch& scratch) {
  if (form.form == Form::xor_planes && run.base.empty()) return CodedBytes{};
  const Scratch::Frame frame(scratch);
  ConstByteSpan bytes = run.data;
  if (form.form != Form::alone) {
    BITSNAP_ASSIGN(bytes, planes_of(run, form.form == Form::xor_planes ? run.base : ConstByteSpan{}, scratch));
  }
  BITSNAP_ASSIGN(const std::uint64_t size, form.engine->encoded_size(bytes));
  return coded(run, size);
}

}  // namespace analyze
}  // namespace bitsnap
