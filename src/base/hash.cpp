// XXH3 through the header-only form of xxHash; the 64-bit one picks the kernel of the CPU level.
#include "base/hash.hpp"

#include <new>

#include "base/cpu_dispatch.hpp"
#include "base/hash_kernel.hpp"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace bitsnap {

static_assert(sizeof(XXH3_state_t) <= 640 && alignof(XXH3_state_t) <= 64);

std::uint64_t hash64_scalar(const void* bytes, std::size_t size) noexcept { return XXH3_64bits(bytes, size); }

std::uint64_t hash64(ConstByteSpan bytes) noexcept {
  static constexpr KernelTable<std::uint64_t(const void*, std::size_t) noexcept> kHash{
      hash64_scalar, BITSNAP_X86(hash64_avx2, hash64_avx512)};
  return kHash.pick()(bytes.data(), bytes.size());
}

Hasher128::Hasher128() { XXH3_128bits_reset(::new (state_.data()) XXH3_state_t); }

void Hasher128::update(ConstByteSpan bytes) noexcept {
  XXH3_128bits_update(reinterpret_cast<XXH3_state_t*>(state_.data()), bytes.data(), bytes.size());
}

Hash128 Hasher128::digest() const noexcept {
  const XXH128_hash_t hash = XXH3_128bits_digest(reinterpret_cast<const XXH3_state_t*>(state_.data()));
  return {hash.low64, hash.high64};
}

}  // namespace bitsnap
