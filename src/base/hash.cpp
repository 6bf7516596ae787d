// XXH3 from the header-only form of xxHash. The 64-bit hash uses the kernel of the CPU level.
#include "base/hash.hpp"

#include <new>

#include "base/cpu_dispatch.hpp"
#include "base/hash_kernel.hpp"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace bitsnap {

static_assert(sizeof(XXH3_state_t) <= 640 && alignof(XXH3_state_t) <= 64);

std::uint64_t hash64(ConstByteSpan bytes) noexcept { return kernels<HashKernels>().hash64(bytes.data(), bytes.size()); }

Hasher128::Hasher128() { XXH3_128bits_reset(::new (state_.data()) XXH3_state_t); }

void Hasher128::update(ConstByteSpan bytes) noexcept {
  XXH3_128bits_update(reinterpret_cast<XXH3_state_t*>(state_.data()), bytes.data(), bytes.size());
}

Hash128 Hasher128::digest() const noexcept {
  const XXH128_hash_t hash = XXH3_128bits_digest(reinterpret_cast<const XXH3_state_t*>(state_.data()));
  return {hash.low64, hash.high64};
}

}  // namespace bitsnap
