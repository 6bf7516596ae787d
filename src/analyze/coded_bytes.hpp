// Sizes that codecs and baselines reach on a run of elements. What they write is discarded.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <bitsnap/analysis.hpp>

#include "base/bytes.hpp"
#include "base/scratch.hpp"
#include "codec/encoder.hpp"

namespace bitsnap::analyze {

// A codec, with or without a base, and with or without the second moments of the same elements.
struct Coding {
  const codec::Encoder* encoder = nullptr;
  bool on_base = false;
  bool beside_squares = false;
};

// All codings of this dtype except `raw`: by id, without a base first. The last ones are of `scaled_by` with second
// moments, for first moments that are multiples of an update step; other codecs with peers are left out.
[[nodiscard]] std::vector<Coding> codings_of(DType dtype);

// A baseline on the bytes as they are, on their byte planes, or on byte planes of the XOR with the base.
struct BaselineForm {
  std::string name;  // of the baseline
  CodedFindings::Form form = CodedFindings::Form::alone;
  std::shared_ptr<const Coder> coder;
};

// Three forms of each baseline, in the order of the baselines.
[[nodiscard]] std::vector<BaselineForm> baseline_forms(std::span<const std::shared_ptr<const Coder>> baselines);

struct CodedBytes {
  std::uint64_t elements = 0;   // to be coded
  std::uint64_t expressed = 0;  // in runs that the coder can express
  std::uint64_t bytes = 0;      // of all elements; raw size where the coder does not shrink them

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
  // For first moments whose update is known, their second moments, as long as `data`; otherwise empty.
  ConstByteSpan squares = {};
  ConstByteSpan base_squares = {};  // may be empty even if `base` is not
  // For first moments that are multiples of an update step, with these squares.
  std::optional<codec::Lattice> lattice = {};

  [[nodiscard]] std::size_t elements() const noexcept { return data.size() / element_size(dtype); }
};

// Both return zero elements if the coding needs a base or a lattice that the run lacks.
[[nodiscard]] Result<CodedBytes> measure_codec(const Coding& coding, const RunBytes& run, Scratch& scratch);
// `worker` was made by the form's coder.
[[nodiscard]] Result<CodedBytes> measure_baseline(const BaselineForm& form, CoderWorker& worker, const RunBytes& run,
                                                  Scratch& scratch);

}  // namespace bitsnap::analyze
