// An engine of each general coder of the command's own benchmark: on the bytes as they are, on byte planes (of elements
// rotated by a bit, so that a plane holds the whole exponent), and on byte planes of the XOR with a base.
#include <array>
#include <utility>

#include "bench/native/native_engine.hpp"
#include "cli/bench_general.hpp"
#include "entropy/planes.hpp"

namespace bitsnap::bench {
namespace {

enum class Transform { plain, planes, planes_of_xor };

using Planes = std::array<std::byte*, entropy::kMaxElementSize>;

class GeneralWorker final : public Worker {
 public:
  GeneralWorker(std::unique_ptr<cli::ByteCoderState> state, Transform transform, DType dtype)
      : state_(std::move(state)),
        transform_(transform),
        width_(element_size(dtype)),
        buffer_(transform == Transform::plain ? 0 : kChunkElements * width_) {}

  Result<std::optional<std::size_t>> encode(const Chunk& chunk, ByteSpan out) override {
    if (transform_ == Transform::plain) return state_->encode(chunk.data, out);
    const std::size_t elements = chunk.data.size() / width_;
    const Planes planes = planes_of(elements);
    if (transform_ == Transform::planes) {
      entropy::rotated_split_planes(chunk.data.data(), elements, width_, planes.data());
    } else {
      entropy::xor_split_planes(chunk.data.data(), chunk.base.data(), elements, width_, planes.data());
    }
    return state_->encode(ByteSpan(buffer_).first(chunk.data.size()), out);
  }

  Result<void> decode(const Chunk& chunk, ConstByteSpan payload, ByteSpan out) override {
    if (transform_ == Transform::plain) return state_->decode(payload, out);
    BITSNAP_TRY(state_->decode(payload, ByteSpan(buffer_).first(out.size())));
    const std::size_t elements = out.size() / width_;
    const Planes planes = planes_of(elements);
    if (transform_ == Transform::planes) {
      entropy::rotated_merge_planes(planes.data(), elements, width_, out.data());
    } else {
      entropy::xor_merge_planes(planes.data(), chunk.base.data(), elements, width_, out.data());
    }
    return {};
  }

 private:
  Planes planes_of(std::size_t elements) noexcept {
    Planes planes{};
    for (std::size_t k = 0; k < width_; ++k) planes[k] = buffer_.data() + k * elements;
    return planes;
  }

  std::unique_ptr<cli::ByteCoderState> state_;
  Transform transform_;
  std::size_t width_;
  std::vector<std::byte> buffer_;
};

class GeneralEngine final : public Engine {
 public:
  GeneralEngine(std::shared_ptr<const cli::ByteCoder> coder, Transform transform)
      : coder_(std::move(coder)), transform_(transform) {}

  std::string name() const override {
    switch (transform_) {
      case Transform::plain: return coder_->name();
      case Transform::planes: return coder_->name() + "+planes";
      case Transform::planes_of_xor: return coder_->name() + "+xor+planes";
    }
    return {};
  }
  bool uses_base() const noexcept override { return transform_ == Transform::planes_of_xor; }
  bool accepts(DType dtype) const noexcept override {
    return transform_ != Transform::planes || element_size(dtype) >= 2;
  }
  std::size_t max_encoded_size(DType dtype, std::size_t elements) const noexcept override {
    return coder_->max_encoded_size(elements * element_size(dtype));
  }
  std::unique_ptr<Worker> make_worker(DType dtype, Role) const override {
    return std::make_unique<GeneralWorker>(coder_->make_state(), transform_, dtype);
  }

 private:
  std::shared_ptr<const cli::ByteCoder> coder_;
  Transform transform_;
};

}  // namespace

void add_general_engines(Engines& engines) {
  for (const auto& coder : {cli::make_zstd_coder(1), cli::make_zstd_coder(3), cli::make_zstd_coder(19),
                            cli::make_lz4_coder(), cli::make_bzip2_coder()}) {
    for (const Transform transform : {Transform::plain, Transform::planes, Transform::planes_of_xor}) {
      engines.push_back(std::make_unique<GeneralEngine>(coder, transform));
    }
  }
}

}  // namespace bitsnap::bench
