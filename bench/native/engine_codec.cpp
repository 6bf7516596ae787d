// Each codec of the registry by itself, with the hashes of the record and restore path; those that take a base also
// against it ("+base"). Codecs that store or refer and do not code are left out, and so is zstd, which has rows of its
// own.
#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "base/scratch.hpp"
#include "bench/native/hashed_chunk.hpp"
#include "bench/native/native_engine.hpp"
#include "codec/registry_encode.hpp"

namespace bitsnap::bench {
namespace {

constexpr std::array<std::string_view, 4> kLeftOut{"raw", "constant", "same", "zstd"};

class CodecWorker final : public Worker {
 public:
  CodecWorker(const codec::Encoder& encoder, bool with_base) : encoder_(encoder), with_base_(with_base) {}

  Result<std::optional<std::size_t>> encode(const Chunk& chunk, ByteSpan out) override {
    const Around around(chunk, with_base_);
    const std::uint64_t hash = hash64(chunk.data);
    BITSNAP_ASSIGN(const auto size, encoder_.encode(chunk.data, around.context, out.subspan(kHashBytes), scratch_));
    if (!size) return std::nullopt;
    return seal_chunk(out, hash, *size);
  }
  Result<void> decode(const Chunk& chunk, ConstByteSpan payload, ByteSpan out) override {
    const Around around(chunk, with_base_);
    BITSNAP_ASSIGN(const ConstByteSpan stored, open_chunk(payload));
    BITSNAP_TRY(encoder_.decoder().decode(stored, around.context, out, scratch_));
    return check_decoded(payload, out);
  }

 private:
  struct Around {
    Around(const Chunk& chunk, bool with_base)
        : input{.kind = codec::InputKind::base, .dtype = chunk.dtype, .bytes = chunk.base},
          context{.dtype = chunk.dtype,
                  .elements = chunk.data.size() / element_size(chunk.dtype),
                  .inputs = {&input, with_base ? 1U : 0U},
                  .parameters = {}} {}
    codec::Input input;
    codec::ChunkContext context;
  };

  const codec::Encoder& encoder_;
  bool with_base_;
  Scratch scratch_;
};

class CodecEngine final : public Engine {
 public:
  CodecEngine(const codec::Encoder& encoder, bool with_base) : encoder_(encoder), with_base_(with_base) {}

  std::string name() const override {
    return std::string(encoder_.decoder().name()) + (with_base_ ? std::string("+base") : std::string());
  }
  bool uses_base() const noexcept override { return with_base_; }
  bool accepts(DType dtype) const noexcept override {
    const codec::Input base{.kind = codec::InputKind::base, .dtype = dtype, .bytes = {}};
    return encoder_.decoder().accepts(dtype, {&base, with_base_ ? 1U : 0U});
  }
  std::size_t max_encoded_size(DType dtype, std::size_t elements) const noexcept override {
    return kHashBytes + encoder_.max_encoded_size(dtype, elements);
  }
  std::unique_ptr<Worker> make_worker(DType, Role) const override {
    return std::make_unique<CodecWorker>(encoder_, with_base_);
  }

 private:
  const codec::Encoder& encoder_;
  bool with_base_;
};

}  // namespace

void add_codec_engines(Engines& engines) {
  for (const codec::Encoder* encoder : codec::all_encoders()) {
    if (std::ranges::find(kLeftOut, encoder->decoder().name()) != kLeftOut.end()) continue;
    for (const bool with_base : {false, true}) {
      auto engine = std::make_unique<CodecEngine>(*encoder, with_base);
      if (engine->accepts(DType::bf16) || engine->accepts(DType::f32)) engines.push_back(std::move(engine));
    }
  }
}

}  // namespace bitsnap::bench
