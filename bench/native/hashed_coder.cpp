// Adds the two hashes of each chunk in a bitsnap file to a coder: of the decoded and of the stored bytes. Encoding
// computes both, and decoding checks both, so that speeds include the cost of hashing in saves and restores. Here they
// come before the payload and count towards its size.
#include <cstdint>
#include <utility>

#include "base/bytes.hpp"
#include "base/hash.hpp"
#include "base/try.hpp"
#include "bench/native/native_coders.hpp"

namespace bitsnap::bench {
namespace {

constexpr std::size_t kHashBytes = 16;

Result<void> check_hash(ConstByteSpan bytes, const std::byte* expected, const char* what) {
  if (hash64(bytes) == load_le<std::uint64_t>(expected)) return {};
  return fail(ErrorKind::internal, std::string("the hash of the ") + what + " bytes differs");
}

class HashedWorker final : public CoderWorker {
 public:
  explicit HashedWorker(std::unique_ptr<CoderWorker> worker) : worker_(std::move(worker)) {}

  Result<std::optional<std::size_t>> encode(const CoderChunk& chunk, ByteSpan out) override {
    store_le<std::uint64_t>(out.data(), hash64(chunk.data));
    BITSNAP_ASSIGN(const auto size, worker_->encode(chunk, out.subspan(kHashBytes)));
    if (!size) return std::nullopt;
    store_le<std::uint64_t>(out.data() + 8, hash64(out.subspan(kHashBytes, *size)));
    return kHashBytes + *size;
  }
  Result<void> decode(const CoderChunk& chunk, ConstByteSpan payload, ByteSpan out) override {
    const ConstByteSpan stored = payload.subspan(kHashBytes);
    BITSNAP_TRY(check_hash(stored, payload.data() + 8, "stored"));
    BITSNAP_TRY(worker_->decode(chunk, stored, out));
    return check_hash(out, payload.data(), "decoded");
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
