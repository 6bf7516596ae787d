// XXH3-64 with avx512 code; compiled with the flags of that level and called only where the machine has it.
#include "base/hash_kernel.hpp"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace bitsnap {

std::uint64_t hash64_avx512(const void* bytes, std::size_t size) noexcept { return XXH3_64bits(bytes, size); }

}  // namespace bitsnap
