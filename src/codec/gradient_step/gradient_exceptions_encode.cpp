// Writes the end of each payload of gradient_step: spec.md, "Payload".
#include "codec/gradient_step/gradient_exceptions_encode.hpp"

#include "base/try.hpp"
#include "codec/builtin_codecs.hpp"

namespace bitsnap::codec {

Result<PayloadSize> finish_with_exceptions(ConstByteSpan elements, ConstByteSpan expected, ByteSpan out,
                                           std::size_t written, bool has_exceptions, Scratch& scratch) {
  if (has_exceptions) {
    const Input base{.kind = InputKind::base, .dtype = DType::f32, .bytes = expected};
    const EncodeContext beside{{DType::f32, elements.size() / sizeof(float), {&base, 1}}};
    BITSNAP_ASSIGN(const PayloadSize others,
                   ordinal_delta_encoder().encode(elements, beside, out.subspan(written), scratch));
    if (!others) return std::nullopt;
    written += *others;
  }
  if (written >= elements.size()) return std::nullopt;
  return written;
}

}  // namespace bitsnap::codec
