// Reads from the source and quantizes in place; measures the errors of what is stored.
#include "save/quantized_source.hpp"

#include <cstring>

#include "base/try.hpp"
#include "quantize/update_errors.hpp"

namespace bitsnap::save {

Result<void> QuantizedSource::read(std::size_t stream, std::uint64_t offset, ByteSpan out, ReadContext& context) const {
  BITSNAP_TRY(source_.read(stream, offset, out, context));
  if (losses_[stream].quantizer == nullptr) return {};
  return quantize(stream, offset, out, context, nullptr);
}

Result<void> QuantizedSource::quantize(std::size_t stream, std::uint64_t offset, ByteSpan out, ReadContext& context,
                                       ErrorTally* tally) const {
  const StreamLoss& loss = losses_[stream];
  const DType dtype = streams_.streams[stream].dtype;
  if (!loss.multiples) return loss.quantizer->quantize(dtype, out, {}, tally);
  const Scratch::Frame frame(context.scratch());
  BITSNAP_ASSIGN(const ByteSpan second_moments, context.scratch().take(out.size()));
  BITSNAP_TRY(read(loss.multiples->second_moments, offset, second_moments, context));
  const quantize::Beside beside{.dtype = DType::f32, .bytes = second_moments};
  return loss.quantizer->quantize(dtype, out, {&beside, 1}, tally);
}

Result<void> QuantizedSource::read_to_store(std::size_t stream, std::uint64_t offset, ByteSpan out,
                                            ReadContext& context, Lost& lost) const {
  const StreamLoss& loss = losses_[stream];
  BITSNAP_TRY(source_.read(stream, offset, out, context));
  if (loss.quantizer == nullptr) return {};
  if (!loss.report.adam || !loss.second_moments) return quantize(stream, offset, out, context, &lost.reached);

  // The errors of moments are measured by the updates that they produce.
  Scratch& scratch = context.scratch();
  const Scratch::Frame frame(scratch);
  BITSNAP_ASSIGN(const ByteSpan moments, scratch.take(out.size()));
  BITSNAP_ASSIGN(const ByteSpan second_moments, scratch.take(out.size()));
  BITSNAP_ASSIGN(const ByteSpan stored_second_moments, scratch.take(out.size()));
  std::memcpy(moments.data(), out.data(), out.size());
  BITSNAP_TRY(source_.read(*loss.second_moments, offset, second_moments, context));
  std::memcpy(stored_second_moments.data(), second_moments.data(), second_moments.size());
  if (losses_[*loss.second_moments].quantizer != nullptr) {
    BITSNAP_TRY(quantize(*loss.second_moments, offset, stored_second_moments, context, nullptr));
  }
  const quantize::Beside beside{.dtype = DType::f32, .bytes = stored_second_moments};
  BITSNAP_TRY(loss.quantizer->quantize(DType::f32, out, std::span(&beside, loss.multiples ? 1 : 0), &lost.reached));
  lost.updates = quantize::update_errors(*loss.report.adam, {moments, second_moments}, {out, stored_second_moments});
  return {};
}

}  // namespace bitsnap::save
