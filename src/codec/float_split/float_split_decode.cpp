// Decodes float_split: floats whose exponent is coded and whose other bits are stored. See spec.md.
#include "codec/float_split/float_split.hpp"

#include <algorithm>

#include "base/cpu_dispatch.hpp"
#include "codec/builtin_codecs.hpp"
#include "codec/payload_checks.hpp"
#include "entropy/rans.hpp"
#include "entropy/split_elements.hpp"

namespace bitsnap::codec {
namespace {

class FloatSplitDecoder final : public Decoder {
 public:
  FloatSplitDecoder() noexcept
      : Decoder(CodecId::float_split, "float_split", "floats: the exponent coded, sign and mantissa stored") {}
  bool accepts(DType dtype, std::span<const Input> inputs) const noexcept override {
    return is_float(dtype) && inputs.empty();
  }

  Result<void> decode(ConstByteSpan payload, const ChunkContext& context, ByteSpan out,
                      Scratch& scratch) const override {
    if (is_of_short_elements(payload)) return decode_short(payload, context, out, scratch);
    ByteCursor cursor(payload);
    BITSNAP_ASSIGN(const auto number, cursor.read<std::uint8_t>("float_split payload: form"));
    const std::size_t element_bytes = element_size(context.dtype);
    const auto last = static_cast<std::uint8_t>(last_form(element_bytes));
    if (number > last) {
      return corrupt("float_split payload: form is {}, expected at most {} for {}", number, last,
                     dtype_name(context.dtype));
    }
    const auto form = static_cast<FloatSplitForm>(number);
    const ConstByteSpan coded = payload.subspan(kFloatSplitHeaderBytes);
    if (is_lanes(form)) {
      return entropy::decode_split(coded,
                                   {.elements = context.elements,
                                    .element_bytes = element_bytes,
                                    .rotated = form == FloatSplitForm::lanes_rotated},
                                   out, scratch);
    }
    return decode_plane_groups(
        coded, {.elements = context.elements, .element_bytes = element_bytes, .form = plane_form(form)}, out, scratch);
  }

 private:
  // Works group by group so that shortened elements stay in the cache.
  static Result<void> decode_short(ConstByteSpan payload, const ChunkContext& context, ByteSpan out, Scratch& scratch) {
    const Scratch::Frame frame(scratch);
    ByteCursor cursor(payload);
    BITSNAP_ASSIGN(const ShortHead head, read_short_head(cursor, context));
    if (!suits_lanes(context.dtype)) {
      return corrupt("float_split payload: elements are shortened, which {} does not allow", dtype_name(context.dtype));
    }
    BITSNAP_ASSIGN(const auto signs, cursor.read<std::uint8_t>("float_split payload: whether there are signs"));
    if (signs > 1) {
      return corrupt("float_split payload: sign flag is {}, expected 0 or 1", signs);
    }
    const ExponentGeometry geometry = exponent_geometry(head.floats, signs == 1);
    BITSNAP_ASSIGN(const ConstByteSpan packed, cursor.take(packed_low_bytes(context.elements, geometry.low_bits()),
                                                           "float_split payload: low bits"));
    // The exponents follow the low bits, and end with the states of all lanes.
    static_assert(entropy::kRansStateBytes >= kReadableBehindLows);
    BITSNAP_ASSIGN(const std::span<std::byte> exponents, scratch.take(context.elements + kGroupColumns));
    BITSNAP_TRY(entropy::decode_split(payload.subspan(cursor.offset()),
                                      {.elements = context.elements, .element_bytes = 1, .rotated = false},
                                      exponents.first(context.elements), scratch));
    const std::size_t group_bytes = kGroupElements * geometry.element_bytes;
    BITSNAP_ASSIGN(const std::span<std::byte> last, scratch.take(group_bytes));
    const auto join = kernels<ExponentKernels>().join;
    const auto* exponents_at = reinterpret_cast<const std::uint8_t*>(exponents.data());
    const auto* packed_at = reinterpret_cast<const std::uint8_t*>(packed.data());
    for (std::size_t at = 0; at < out.size(); at += group_bytes) {
      const ByteSpan group = out.subspan(at, std::min(group_bytes, out.size() - at));
      const std::size_t rows = divide_up(group.size(), kGroupColumns * geometry.element_bytes);
      const bool is_whole = group.size() == rows * kGroupColumns * geometry.element_bytes;
      join(exponents_at, packed_at, rows, geometry,
           reinterpret_cast<std::uint8_t*>(is_whole ? group.data() : last.data()));
      if (!is_whole) std::ranges::copy(last.first(group.size()), group.begin());
      exponents_at += kGroupElements;
      packed_at += packed_row_bytes(rows, geometry.low_bits());
    }
    put_exceptions(head, out);
    return {};
  }
};

}  // namespace

const Decoder& float_split_decoder() noexcept { return only<FloatSplitDecoder>(); }

}  // namespace bitsnap::codec
