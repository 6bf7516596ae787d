// An engine of each codec of bitsnap, through its public interface; those that take a base also against it.
#include <memory>
#include <string>
#include <utility>

#include <bitsnap/codec.hpp>

#include "cli/bench_engine.hpp"

namespace bitsnap::cli {

namespace {

class CodecWorker final : public BenchWorker {
 public:
  CodecWorker(std::string codec, bool with_base) : codec_(std::move(codec)), with_base_(with_base) {}

  Result<std::size_t> encode(const BenchChunk& chunk, std::span<std::byte> out) override {
    return encode_chunk(codec_, chunk.dtype, chunk.data, base_of(chunk), out);
  }
  Result<void> decode(const BenchChunk& chunk, std::span<const std::byte> payload, std::span<std::byte> out) override {
    return decode_chunk(codec_, chunk.dtype, payload, base_of(chunk), out);
  }

 private:
  [[nodiscard]] std::span<const std::byte> base_of(const BenchChunk& chunk) const noexcept {
    return with_base_ ? chunk.base : std::span<const std::byte>{};
  }

  std::string codec_;
  bool with_base_;
};

class CodecEngine final : public BenchEngine {
 public:
  CodecEngine(std::string_view codec, bool with_base)
      : codec_(codec), name_(with_base ? codec_ + "+base" : codec_), with_base_(with_base) {}

  const std::string& name() const noexcept override { return name_; }
  bool accepts(const BenchChunk& chunk) const noexcept override {
    return (!with_base_ || !chunk.base.empty()) && codec_accepts(codec_, chunk.dtype, with_base_);
  }
  Result<std::size_t> max_encoded_size(const BenchChunk& chunk) const override {
    return bitsnap::max_encoded_size(codec_, chunk.dtype, chunk.data.size() / element_size(chunk.dtype));
  }
  std::unique_ptr<BenchWorker> make_worker() const override {
    return std::make_unique<CodecWorker>(codec_, with_base_);
  }

 private:
  std::string codec_;
  std::string name_;
  bool with_base_;
};

}  // namespace

void add_codec_engines(BenchEngines& engines, bool with_base) {
  for (const CodecInfo& codec : list_codecs()) {
    engines.push_back(std::make_unique<CodecEngine>(codec.name, false));
    if (with_base) {
      engines.push_back(std::make_unique<CodecEngine>(codec.name, true));
    }
  }
}

}  // namespace bitsnap::cli
