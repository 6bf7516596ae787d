// Adds the two hashes of each chunk (hashed_chunk.hpp) to a coder, so that the speeds of codecs include the cost of
// hashing in saves and restores.
#include <utility>

#include "base/try.hpp"
#include "bench/native/hashed_chunk.hpp"
#include "bench/native/native_coders.hpp"

namespace bitsnap::bench {
namespace {

class HashedWorker final : public CoderWorker {
 public:
  explicit HashedWorker(std::unique_ptr<CoderWorker> worker) : worker_(std::move(worker)) {}

  Result<std::optional<std::size_t>> encode(const CoderChunk& chunk, ByteSpan out) override {
    const std::uint64_t hash = hash64(chunk.data);
    BITSNAP_ASSIGN(const auto size, worker_->encode(chunk, out.subspan(kHashBytes)));
    if (!size) return std::nullopt;
    return seal_chunk(out, hash, *size);
  }
  Result<void> decode(const CoderChunk& chunk, ConstByteSpan payload, ByteSpan out) override {
    BITSNAP_ASSIGN(const ConstByteSpan stored, open_chunk(payload));
    BITSNAP_TRY(worker_->decode(chunk, stored, out));
    return check_decoded(payload, out);
  }

 private:
  std::unique_ptr<CoderWorker> worker_;
};

class HashedCoder final : public Coder {
 public:
  explicit HashedCoder(CoderPointer coder) : coder_(std::move(coder)) {}

  std::string name() const override { return coder_->name(); }
  bool uses_base() const noexcept override { return coder_->uses_base(); }
  bool accepts(DType dtype) const noexcept override { return coder_->accepts(dtype); }
  std::size_t max_encoded_size(DType dtype, std::size_t elements) const noexcept override {
    return kHashBytes + coder_->max_encoded_size(dtype, elements);
  }
  std::unique_ptr<CoderWorker> make_worker() const override {
    return std::make_unique<HashedWorker>(coder_->make_worker());
  }

 private:
  CoderPointer coder_;
};

}  // namespace

CoderPointer make_hashed_coder(CoderPointer coder) { return std::make_shared<HashedCoder>(std::move(coder)); }

}  // namespace bitsnap::bench
