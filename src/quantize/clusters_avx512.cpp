// Clusters of numbers, for AVX-512.
#include "quantize/clusters_kernel.hpp"

#if defined(__x86_64__)
#include "quantize/clusters_loop.hpp"

namespace bitsnap::quantize {

ClusterMoments moments_avx512(const std::uint8_t* elements, std::size_t count) noexcept {
  return moments_loop(elements, count);
}

void to_clusters_avx512(const ClusterScales& scales, const std::uint8_t* elements, const std::uint8_t* labels,
                        std::size_t count, std::uint8_t* out) noexcept {
  to_clusters_loop(scales, elements, labels, count, out);
}

}  // namespace bitsnap::quantize
#endif
