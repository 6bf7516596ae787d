// What codecs and general engines make of a run of elements. Nothing is kept of what they write but its size.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include <bitsnap/analysis.hpp>

#include "base/bytes.hpp"
#include "base/scratch.hpp"
#include "codec/encoder.hpp"

namespace bitsnap::analyze {

// A codec with or without a base, and with or without the second moments of the same elements.
struct Coding {
  const codec::Encoder* encoder = nullptr;
  bool on_base = false;
  bool beside_squares = false;
};

// All that take elements of this dtype, but for `raw`: by id, without a base first. Of codecs that take other tensors
// of the same state there is `scaled_by` alone, last, for first moments that are multiples of a step.
[[nodiscard]] std::vector<Coding> codings_of(DType dtype);

// An engine on the bytes as they are, on their planes, or on planes of the XOR with the base.
struct EngineForm {
  const AnalysisEngine* engine = nullptr;
  CodedFindings::Form form = CodedFindings::Form::alone;
};

// In the order of the engines. Elements of one byte have no planes.
[[nodiscard]] std::vector<EngineForm> engine_forms(std::span<const AnalysisEngine> engines, DType dtype);

struct CodedBytes {
  std::uint64_t elements = 0;   // that were there to be coded
  std::uint64_t expressed = 0;  // of them, those of runs that the coder could take
  std::uint64_t bytes = 0;      // of all; as they are where the coder could not make them smaller

  void add(const CodedBytes& other) noexcept {
    elements += other.elements;
    expressed += other.expressed;
    bytes += other.bytes;
  }
  [[nodiscard]] double bits() const noexcept {
    return elements == 0 ? 0.0 : 8.0 * static_cast<double>(bytes) / static_cast<double>(elements);
  }
};

// A run of elements. `base` is empty or as long.
struct RunBytes {
  DType dtype = DType::opaque;
  ConstByteSpan data;
  ConstByteSpan base;
  codec::RowPlace rows;
  // Of first moments whose update is known: their second moments, as long as `data` and `base`. Otherwise empty.
  ConstByteSpan squares = {};
  ConstByteSpan base_squares = {};  // may be empty where `base` is not
  // Of those that are multiples of a step, beside these squares.
  std::optional<codec::Lattice> lattice = {};

  [[nodiscard]] std::size_t elements() const noexcept { return data.size() / element_size(dtype); }
};

// Nothing, that is no elements, where a base is needed and there is none, and likewise of a lattice.
[[nodiscard]] Result<CodedBytes> measure_codec(const Coding& coding, const RunBytes& run, Scratch& scratch);
[[nodiscard]] Result<CodedBytes> measure_engine(const EngineForm& form, const RunBytes& run, Scratch& scratch);

}  // namespace bitsnap::analyze
