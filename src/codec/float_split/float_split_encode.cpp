// Encodes float_split: floats whose exponent is coded and whose other bits are stored. See spec.md.
#include <cstring>

#include "base/spread_runs.hpp"
#include "codec/builtin_codecs.hpp"
#include "codec/encoder.hpp"
#include "codec/float_split/float_split.hpp"
#include "codec/float_split/short_floats_encode.hpp"
#include "codec/plane_groups_encode.hpp"
#include "codec/short_elements_encode.hpp"
#include "entropy/split_elements_encode.hpp"

namespace bitsnap::codec {
namespace {

// The estimate of planes encodes a sixteenth of the chunk, in runs long enough for Huffman tables.
constexpr SpreadRuns kPlaneRuns{.count = 16, .elements = 1024, .alignment = 16};
static_assert(kPlaneRuns.total() * 4 < kMinLanesBytes && kMinLanesBytes / 4 >= kPlaneRuns.total());

class FloatSplitEncoder final : public Encoder {
 public:
  FloatSplitEncoder() noexcept : Encoder(float_split_decoder()) {}

  std::size_t max_encoded_size(DType dtype, std::size_t elements) const noexcept override {
    // Lanes are dropped if they would be larger than the chunk; planes may be larger.
    const std::size_t planes = kFloatSplitHeaderBytes + max_plane_groups_size(elements, element_size(dtype));
    return suits_lanes(dtype) ? std::max(planes, max_short_floats_size(dtype, elements)) : planes;
  }

  bool analyzes_whole_chunks(DType dtype) const noexcept override { return suits_lanes(dtype); }

  // Estimates from the samples of the lane coder; if the chunk does not suit lanes, by encoding the planes of a part of
  // it.
  Result<std::optional<Estimate>> analyze(ConstByteSpan data, const EncodeContext& context, std::size_t elements,
                                          Scratch& scratch) const override {
    if (!suits_lanes(context.dtype) || context.elements != elements || data.size() < kMinLanesBytes) {
      return Encoder::analyze(data, context, elements, scratch);
    }
    const std::size_t element_bytes = element_size(context.dtype);
    bool has_sign = false;
    for (std::size_t run = 0; run < kPlaneRuns.count && !has_sign; ++run) {
      const std::byte* const first = data.data() + kPlaneRuns.start(run, elements) * element_bytes;
      has_sign = entropy::any_sign_bit_set(first, kPlaneRuns.elements, element_bytes);
    }
    const unsigned zero_bits = choose_zero_bits(data, context.dtype);
    if (zero_bits == 0) {
      const entropy::SplitShape shape{.elements = elements, .element_bytes = element_bytes, .rotated = has_sign};
      BITSNAP_ASSIGN(const std::optional<std::size_t> size, entropy::estimate_split(data, shape, scratch));
      if (size && *size >= data.size()) return std::nullopt;
      if (size) return Estimate{.payload_bytes = kFloatSplitHeaderBytes + *size};
    }
    const Scratch::Frame frame(scratch);
    BITSNAP_ASSIGN(const ByteSpan sample, scratch.take(kPlaneRuns.total() * element_bytes));
    kPlaneRuns.gather(data.data(), elements, element_bytes, sample.data());
    if (zero_bits > 0) {
      const ShortFloats floats{.dtype = context.dtype, .zero_bits = zero_bits};
      BITSNAP_ASSIGN(const std::optional<std::size_t> size,
                     estimate_short_floats(sample, floats, has_sign, elements, scratch));
      if (size) return Estimate{.payload_bytes = *size};
    }
    EncodeContext sampled = context;
    sampled.elements = kPlaneRuns.total();
    return Encoder::analyze(sample, sampled, elements, scratch);
  }

  Result<PayloadSize> encode(ConstByteSpan data, const EncodeContext& context, ByteSpan out,
                             Scratch& scratch) const override {
    const std::size_t element_bytes = element_size(context.dtype);
    const bool has_sign = element_bytes > 1 && entropy::any_sign_bit_set(data.data(), context.elements, element_bytes);
    const ByteSpan coded = out.subspan(kFloatSplitHeaderBytes);
    const bool is_for_lanes = suits_lanes(context.dtype) && data.size() >= kMinLanesBytes;
    const unsigned zero_bits = is_for_lanes ? choose_zero_bits(data, context.dtype) : 0;
    if (zero_bits > 0) {
      const ShortFloats floats{.dtype = context.dtype, .zero_bits = zero_bits};
      BITSNAP_ASSIGN(const std::optional<std::size_t> size, encode_short_floats(data, floats, has_sign, out, scratch));
      if (size) return size;
    } else if (is_for_lanes) {
      // If no sign is set, the elements are not rotated: the topmost byte then lacks the lowest exponent bit, which is
      // nearly random without signs, and the raw part is whole bytes.
      const entropy::SplitShape shape{
          .elements = context.elements, .element_bytes = element_bytes, .rotated = has_sign};
      BITSNAP_ASSIGN(const std::optional<std::size_t> size, entropy::encode_split(data, shape, coded, scratch));
      if (size) {
        return finish(has_sign ? FloatSplitForm::lanes_rotated : FloatSplitForm::lanes, *size, data.size(), out);
      }
    }
    PlaneGeometry geometry{.elements = context.elements, .element_bytes = element_bytes};
    FloatSplitForm form = FloatSplitForm::planes;
    if (has_sign) {
      form = FloatSplitForm::planes_rotated;
    } else if (element_bytes > 1) {
      BITSNAP_ASSIGN(form, choose_unsigned_planes(data, geometry, scratch));
    }
    geometry.form = plane_form(form);
    BITSNAP_ASSIGN(const std::size_t size, encode_plane_groups(data, geometry, coded, scratch));
    return finish(form, size, data.size(), out);
  }

 private:
  static std::optional<std::size_t> finish(FloatSplitForm form, std::size_t coded_size, std::size_t chunk_size,
                                           ByteSpan out) noexcept {
    const std::size_t size = kFloatSplitHeaderBytes + coded_size;
    if (size >= chunk_size) return std::nullopt;
    out[0] = static_cast<std::byte>(form);
    return size;
  }

  // If no sign is set, the form without the sign is best for a random mantissa, and the unchanged form for others,
  // because packing hides patterns. The first group of the chunk decides.
  static Result<FloatSplitForm> choose_unsigned_planes(ConstByteSpan data, PlaneGeometry geometry, Scratch& scratch) {
    geometry.elements = std::min(geometry.elements, entropy::kBlockBytes);
    geometry.form = plane_form(FloatSplitForm::planes);
    BITSNAP_ASSIGN(const std::size_t plain_size, plane_groups_size(data, geometry, scratch));
    geometry.form = plane_form(FloatSplitForm::planes_unsigned);
    BITSNAP_ASSIGN(const std::size_t unsigned_size, plane_groups_size(data, geometry, scratch));
    return plain_size <= unsigned_size ? FloatSplitForm::planes : FloatSplitForm::planes_unsigned;
  }
};

}  // namespace

const Encoder& float_split_encoder() noexcept { return only<FloatSplitEncoder>(); }

}  // namespace bitsnap::codec
