// An engine of each general coder: on the bytes as they are, on byte planes, and on byte planes of the XOR with a base.
#include "cli/bench_general.hpp"

#include <memory>
#include <utility>
#include <vector>

#include "cli/bench_engine.hpp"
#include "cli/bench_planes.hpp"

namespace bitsnap::cli {

namespace {

enum class Transform { plain, planes, planes_of_xor };

class GeneralWorker final : public BenchWorker {
 public:
  GeneralWorker(std::unique_ptr<ByteCoderState> state, Transform transform)
      : state_(std::move(state)), transform_(transform) {}

  Result<std::size_t> encode(const BenchChunk& chunk, std::span<std::byte> out) override {
    if (transform_ == Transform::plain) {
      return state_->encode(chunk.data, out);
    }
    const std::span<std::byte> planes = buffer(chunk.data.size());
    split_planes(chunk.data, base_of(chunk), element_size(chunk.dtype), planes);
    return state_->encode(planes, out);
  }

  Result<void> decode(const BenchChunk& chunk, std::span<const std::byte> payload, std::span<std::byte> out) override {
    if (transform_ == Transform::plain) {
      return state_->decode(payload, out);
    }
    const std::span<std::byte> planes = buffer(out.size());
    if (auto decoded = state_->decode(payload, planes); !decoded) {
      return decoded;
    }
    merge_planes(planes, base_of(chunk), element_size(chunk.dtype), out);
    return {};
  }

 private:
  [[nodiscard]] std::span<const std::byte> base_of(const BenchChunk& chunk) const noexcept {
    return transform_ == Transform::planes_of_xor ? chunk.base : std::span<const std::byte>{};
  }
  [[nodiscard]] std::span<std::byte> buffer(std::size_t size) {
    if (planes_.size() < size) {
      planes_.resize(size);
    }
    return std::span(planes_).first(size);
  }

  std::unique_ptr<ByteCoderState> state_;
  Transform transform_;
  std::vector<std::byte> planes_;
};

class GeneralEngine final : public BenchEngine {
 public:
  GeneralEngine(std::shared_ptr<const ByteCoder> coder, Transform transform)
      : coder_(std::move(coder)), transform_(transform), name_(coder_->name()) {
    if (transform != Transform::plain) {
      name_ += transform == Transform::planes ? "+planes" : "+xor+planes";
    }
  }

  const std::string& name() const noexcept override { return name_; }
  bool accepts(const BenchChunk& chunk) const noexcept override {
    return transform_ != Transform::planes_of_xor || !chunk.base.empty();
  }
  Result<std::size_t> max_encoded_size(const BenchChunk& chunk) const override {
    return coder_->max_encoded_size(chunk.data.size());
  }
  std::unique_ptr<BenchWorker> make_worker() const override {
    return std::make_unique<GeneralWorker>(coder_->make_state(), transform_);
  }

 private:
  std::shared_ptr<const ByteCoder> coder_;
  Transform transform_;
  std::string name_;
};

}  // namespace

std::vector<std::shared_ptr<const ByteCoder>> general_coders() {
  return {make_zstd_coder(1), make_zstd_coder(3), make_lz4_coder(), make_bzip2_coder()};
}

void add_general_engines(BenchEngines& engines, bool with_base) {
  engines.push_back(std::make_unique<GeneralEngine>(make_memcpy_coder(), Transform::plain));
  for (const auto& coder : general_coders()) {
    engines.push_back(std::make_unique<GeneralEngine>(coder, Transform::plain));
    engines.push_back(std::make_unique<GeneralEngine>(coder, Transform::planes));
    if (with_base) {
      engines.push_back(std::make_unique<GeneralEngine>(coder, Transform::planes_of_xor));
    }
  }
}

}  // namespace bitsnap::cli
