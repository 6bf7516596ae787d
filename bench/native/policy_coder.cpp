// Codes chunks like a save with the policy lossless: detects unchanged and constant chunks, and lets the planner choose
// a codec for the others. Leaves out hashes, files, chains, and the copy into private memory.
#include <algorithm>
#include <cstring>

#include "base/bytes.hpp"
#include "base/scratch.hpp"
#include "base/try.hpp"
#include "bench/native/native_coders.hpp"
#include "codec/registry.hpp"
#include "codec/registry_encode.hpp"
#include "plan/planner.hpp"

namespace bitsnap::bench {
namespace {

constexpr std::size_t kTagBytes = 3;  // the codec's id, and whether it used the base

class PolicyWorker final : public CoderWorker {
 public:
  explicit PolicyWorker(bool with_base) : with_base_(with_base) {}

  Result<std::optional<std::size_t>> encode(const CoderChunk& chunk, ByteSpan out) override {
    if (chunk.base.size() == chunk.data.size() &&
        std::memcmp(chunk.base.data(), chunk.data.data(), chunk.data.size()) == 0) {
      return finish(out, codec::CodecId::same, true, 0);
    }
    BITSNAP_ASSIGN(const auto constant, try_codec(*codec::find_encoder(codec::CodecId::constant), chunk, false, out));
    if (constant) return finish(out, codec::CodecId::constant, false, *constant);
    BITSNAP_ASSIGN(
        const plan::Choice choice,
        planner_for(chunk).choose(chunk.data, {.base = {codec::InputKind::base, chunk.dtype, chunk.base}}, scratch_));
    if (choice.candidate.encoder == nullptr) return std::nullopt;
    const bool with_base = choice.candidate.uses_base();
    BITSNAP_ASSIGN(const auto size, try_codec(*choice.candidate.encoder, chunk, with_base, out, choice.analysis.get()));
    if (!size || *size >= chunk.data.size()) return std::nullopt;
    return finish(out, choice.candidate.encoder->decoder().id(), with_base, *size);
  }

  Result<void> decode(const CoderChunk& chunk, ConstByteSpan payload, ByteSpan out) override {
    const auto id = load_le<std::uint16_t>(payload.data());
    const bool with_base = payload[2] != std::byte{0};
    if (id == static_cast<std::uint16_t>(codec::CodecId::same)) {
      std::memcpy(out.data(), chunk.base.data(), out.size());
      return {};
    }
    const codec::Input input{.kind = codec::InputKind::base, .dtype = chunk.dtype, .bytes = chunk.base};
    return codec::find_decoder(id)->decode(payload.subspan(kTagBytes), context(chunk, input, with_base), out, scratch_);
  }

 private:
  // A planner serves one dtype and role. Callers measure one role after the other.
  const plan::StreamPlanner& planner_for(const CoderChunk& chunk) {
    if (!planner_ || chunk.dtype != dtype_ || chunk.role != role_) {
      dtype_ = chunk.dtype;
      role_ = chunk.role;
      planner_.emplace(plan::PlannerSettings{.objective = Objective::ratio},
                       plan::StreamTraits{.dtype = dtype_, .role = role_, .has_base = with_base_});
    }
    return *planner_;
  }

  static codec::ChunkContext context(const CoderChunk& chunk, const codec::Input& input, bool with_base) noexcept {
    return {.dtype = chunk.dtype,
            .elements = chunk.data.size() / element_size(chunk.dtype),
            .inputs = {&input, with_base ? 1U : 0U}};
  }

  Result<std::optional<std::size_t>> try_codec(const codec::Encoder& encoder, const CoderChunk& chunk, bool with_base,
                                               ByteSpan out, const codec::Analysis* analysis = nullptr) {
    const codec::Input input{.kind = codec::InputKind::base, .dtype = chunk.dtype, .bytes = chunk.base};
    codec::EncodeContext own{context(chunk, input, with_base)};
    own.analysis = analysis;
    return encoder.encode(chunk.data, own, out.subspan(kTagBytes), scratch_);
  }

  static std::size_t finish(ByteSpan out, codec::CodecId id, bool with_base, std::size_t size) noexcept {
    store_le<std::uint16_t>(out.data(), static_cast<std::uint16_t>(id));
    out[2] = std::byte{with_base};
    return kTagBytes + size;
  }

  bool with_base_;
  DType dtype_ = DType::opaque;
  Role role_ = Role::other;
  std::optional<plan::StreamPlanner> planner_;
  Scratch scratch_;
};

class PolicyCoder final : public Coder {
 public:
  explicit PolicyCoder(bool with_base) : with_base_(with_base) {}

  std::string name() const override { return with_base_ ? "lossless+base" : "lossless"; }
  bool uses_base() const noexcept override { return with_base_; }
  bool accepts(DType) const noexcept override { return true; }
  std::size_t max_encoded_size(DType dtype, std::size_t elements) const noexcept override {
    std::size_t most = 0;
    for (const codec::Encoder* encoder : codec::all_encoders()) {
      most = std::max(most, encoder->max_encoded_size(dtype, elements));
    }
    return kTagBytes + most;
  }
  std::unique_ptr<CoderWorker> make_worker() const override { return std::make_unique<PolicyWorker>(with_base_); }

 private:
  bool with_base_;
};

}  // namespace

CoderPointer make_policy_coder(bool with_base) { return std::make_shared<PolicyCoder>(with_base); }

}  // namespace bitsnap::bench
