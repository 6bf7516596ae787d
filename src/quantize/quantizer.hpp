// The interface of quantizers. A quantizer replaces elements in place by nearby ones that need fewer bits, within a
// requested bound, before coding. Codecs then store the result bit for bit: docs/spec/quantizers.md.
//
// The result for an element depends on its bits, on the parameters, and on the corresponding elements of other
// tensors, but not on its neighbours. So any part of a tensor can be quantized alone. Quantizers are immutable and
// shared by all threads. They allocate nothing.
#pragma once

#include <span>
#include <string_view>

#include <bitsnap/dtype.hpp>
#include <bitsnap/error.hpp>
#include <bitsnap/error_tally.hpp>

#include "base/bytes.hpp"

namespace bitsnap::quantize {

// The corresponding elements of another tensor, as they are stored (after quantization).
struct Beside {
  DType dtype = DType::opaque;
  ConstByteSpan bytes;
};

class Quantizer {
 public:
  virtual ~Quantizer() = default;

  [[nodiscard]] virtual std::string_view name() const noexcept = 0;

  // Quantizes in place. Merges the tallies of chunks of kChunkElements, counted from the start of `elements`, into
  // `tally` in order, so a tensor has the same tally as its chunks merged in order. `tally` may be nullptr, which is
  // faster. An error (wrong dtypes or sizes) leaves everything unchanged.
  [[nodiscard]] virtual Result<void> quantize(DType dtype, ByteSpan elements, std::span<const Beside> beside,
                                              ErrorTally* tally) const = 0;

 protected:
  Quantizer() = default;
  Quantizer(const Quantizer&) = default;
  Quantizer& operator=(const Quantizer&) = default;
};

}  // namespace bitsnap::quantize
