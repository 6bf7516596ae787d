// XXH3-64 from the header-only form of xxHash, which uses the instructions of the level that it is compiled for.
#include "base/hash_kernel.hpp"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace bitsnap {
namespace {

std::uint64_t hash64(const void* bytes, std::size_t size) noexcept { return XXH3_64bits(bytes, size); }

}  // namespace

constinit const HashKernels HashKernels::BITSNAP_KERNEL_LEVEL = {bitsnap::hash64};

}  // namespace bitsnap
