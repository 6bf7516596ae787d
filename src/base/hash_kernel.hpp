// XXH3-64 for one CPU level.
#pragma once

#include <cstddef>
#include <cstdint>

namespace bitsnap {

struct HashKernels {
  std::uint64_t (*hash64)(const void* bytes, std::size_t size) noexcept;

  static const HashKernels kScalar, kAvx2, kAvx512;
};

}  // namespace bitsnap
