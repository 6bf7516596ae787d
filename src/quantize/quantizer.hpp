// What every quantizer is: it replaces elements by nearby ones that take fewer bits, in place, within a bound that was
// asked for, before anything is coded. Codecs then store what it made, bit for bit: docs/spec/quantizers.md.
//
// What becomes of an element depends on its own bits, on the parameters, and on the elements that stand beside it in
// other tensors; not on its neighbours. So any part of a tensor can be quantized alone and gets the bits that it has in
// the whole. Quantizers are immutable and can be shared by all threads. They allocate nothing.
#pragma once

#include <span>
#include <string_view>

#include <bitsnap/dtype.hpp>
#include <bitsnap/error.hpp>
#include <bitsnap/error_tally.hpp>

#include "base/bytes.hpp"

namespace bitsnap::quantize {

// The same elements of another tensor, as they are stored: what was made of them, if they are quantized, too.
struct Beside {
  DType dtype = DType::opaque;
  ConstByteSpan bytes;
};

class Quantizer {
 public:
  virtual ~Quantizer() = default;

  [[nodiscard]] virtual std::string_view name() const noexcept = 0;

  // In place. Tallies of chunks are merged into `tally` in their order, a chunk being kChunkElements from the first of
  // `elements` on; so a tensor gives the same tally as its chunks, each quantized by some thread and merged in their
  // order. nullptr: nobody wants to know, and it takes less time. An error, of dtypes or sizes, leaves everything as it
  // was.
  [[nodiscard]] virtual Result<void> quantize(DType dtype, ByteSpan elements, std::span<const Beside> beside,
                                              ErrorTally* tally) const = 0;

 protected:
  Quantizer() = default;
  Quantizer(const Quantizer&) = default;
  Quantizer& operator=(const Quantizer&) = default;
};

}  // namespace bitsnap::quantize
