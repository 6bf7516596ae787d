// <bitsnap/coder.hpp>: the coders that need nothing but the library, for measurements.
#include <array>
#include <utility>
#include <vector>

#include <bitsnap/codec.hpp>
#include <bitsnap/coder.hpp>

#include "base/bytes.hpp"
#include "base/try.hpp"
#include "codec/registry_encode.hpp"
#include "entropy/planes.hpp"

namespace bitsnap {
namespace {

// Working memory is that of the thread: encode_chunk() keeps it.
class CodecWorker final : public CoderWorker {
 public:
  CodecWorker(std::string_view codec, bool with_base) : codec_(codec), with_base_(with_base) {}

  Result<std::optional<std::size_t>> encode(const CoderChunk& chunk, ByteSpan out) override {
    return encode_chunk(codec_, chunk.dtype, chunk.data, base_of(chunk), out);
  }
  Result<void> decode(const CoderChunk& chunk, ConstByteSpan payload, ByteSpan out) override {
    return decode_chunk(codec_, chunk.dtype, payload, base_of(chunk), out);
  }

 private:
  [[nodiscard]] ConstByteSpan base_of(const CoderChunk& chunk) const noexcept {
    return with_base_ ? chunk.base : ConstByteSpan{};
  }

  std::string_view codec_;
  bool with_base_;
};

class CodecCoder final : public Coder {
 public:
  CodecCoder(const codec::Encoder& encoder, bool with_base) : encoder_(encoder), with_base_(with_base) {}

  std::string name() const override { return std::string(codec()) + (with_base_ ? "+base" : ""); }
  bool uses_base() const noexcept override { return with_base_; }
  bool accepts(DType dtype) const noexcept override { return codec_accepts(codec(), dtype, with_base_); }
  std::size_t max_encoded_size(DType dtype, std::size_t elements) const noexcept override {
    return encoder_.max_encoded_size(dtype, elements);
  }
  std::unique_ptr<CoderWorker> make_worker() const override {
    return std::make_unique<CodecWorker>(codec(), with_base_);
  }

 private:
  [[nodiscard]] std::string_view codec() const noexcept { return encoder_.decoder().name(); }

  const codec::Encoder& encoder_;
  bool with_base_;
};

class PlaneWorker final : public CoderWorker {
 public:
  PlaneWorker(std::unique_ptr<CoderWorker> worker, BytePlanes planes) : worker_(std::move(worker)), kind_(planes) {}

  Result<std::optional<std::size_t>> encode(const CoderChunk& chunk, ByteSpan out) override {
    const Planes planes = planes_of(chunk.data.size(), chunk.dtype);
    const std::byte* const in = chunk.data.data();
    if (kind_ == BytePlanes::of_xor) {
      entropy::xor_split_planes(in, chunk.base.data(), planes.elements, planes.width, planes.begin.data());
    } else {
      const auto split = kind_ == BytePlanes::plain ? entropy::split_planes : entropy::rotated_split_planes;
      split(in, planes.elements, planes.width, planes.begin.data());
    }
    return worker_->encode(as_bytes(ConstByteSpan(buffer_).first(chunk.data.size())), out);
  }

  Result<void> decode(const CoderChunk& chunk, ConstByteSpan payload, ByteSpan out) override {
    const Planes planes = planes_of(out.size(), chunk.dtype);
    BITSNAP_TRY(worker_->decode(as_bytes({}), payload, ByteSpan(buffer_).first(out.size())));
    if (kind_ == BytePlanes::of_xor) {
      entropy::xor_merge_planes(planes.begin.data(), chunk.base.data(), planes.elements, planes.width, out.data());
    } else {
      const auto merge = kind_ == BytePlanes::plain ? entropy::merge_planes : entropy::rotated_merge_planes;
      merge(planes.begin.data(), planes.elements, planes.width, out.data());
    }
    return {};
  }

 private:
  struct Planes {
    std::size_t elements = 0;
    std::size_t width = 0;  // bytes of an element
    std::array<std::byte*, entropy::kMaxElementSize> begin{};
  };

  static CoderChunk as_bytes(ConstByteSpan planes) noexcept { return {.dtype = DType::u8, .data = planes, .base = {}}; }

  Planes planes_of(std::size_t bytes, DType dtype) {
    if (buffer_.size() < bytes) buffer_.resize(bytes);
    Planes planes{.elements = bytes / element_size(dtype), .width = element_size(dtype)};
    for (std::size_t i = 0; i < planes.width; ++i) planes.begin[i] = buffer_.data() + i * planes.elements;
    return planes;
  }

  std::unique_ptr<CoderWorker> worker_;
  BytePlanes kind_;
  std::vector<std::byte> buffer_;
};

class PlaneCoder final : public Coder {
 public:
  PlaneCoder(std::shared_ptr<const Coder> coder, BytePlanes planes) : coder_(std::move(coder)), planes_(planes) {}

  std::string name() const override { return coder_->name() + (uses_base() ? "+xor+planes" : "+planes"); }
  bool uses_base() const noexcept override { return planes_ == BytePlanes::of_xor; }
  bool accepts(DType dtype) const noexcept override { return uses_base() || element_size(dtype) >= 2; }
  std::size_t max_encoded_size(DType dtype, std::size_t elements) const noexcept override {
    return coder_->max_encoded_size(DType::u8, elements * element_size(dtype));
  }
  std::unique_ptr<CoderWorker> make_worker() const override {
    return std::make_unique<PlaneWorker>(coder_->make_worker(), planes_);
  }

 private:
  std::shared_ptr<const Coder> coder_;
  BytePlanes planes_;
};

}  // namespace

Result<std::shared_ptr<const Coder>> make_codec_coder(std::string_view codec, bool with_base) {
  const codec::Encoder* const encoder = codec::find_encoder(codec);
  if (encoder == nullptr) return fail(ErrorKind::invalid_argument, "there is no codec '" + std::string(codec) + "'");
  return std::make_shared<CodecCoder>(*encoder, with_base);
}

std::shared_ptr<const Coder> make_plane_coder(std::shared_ptr<const Coder> coder, BytePlanes planes) {
  return std::make_shared<PlaneCoder>(std::move(coder), planes);
}

}  // namespace bitsnap
