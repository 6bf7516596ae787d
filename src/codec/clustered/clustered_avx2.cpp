// Elements as labels and codes of clusters, for AVX2.
#include "codec/clustered/clustered_kernel.hpp"

#if defined(__x86_64__)
#include "codec/clustered/clustered_loop.hpp"

namespace bitsnap::codec {

void find_labels_avx2(const ClusterBoundaries& boundaries, const std::uint8_t* elements, std::size_t count,
                      std::uint8_t* labels) noexcept {
  find_labels_loop(boundaries, elements, count, labels);
}

bool find_codes_avx2(const ClusterScales& scales, const std::uint8_t* elements, const std::uint8_t* labels,
                     std::size_t count, std::uint8_t* codes, std::uint8_t* missed) noexcept {
  return find_codes_loop(scales, elements, labels, count, codes, missed);
}

void put_clustered_avx2(const ClusterScales& scales, const std::uint8_t* labels, const std::uint8_t* codes,
                        std::size_t count, std::uint8_t* out) noexcept {
  put_clustered_loop(scales, labels, codes, count, out);
}

void pack_labels_avx2(const std::uint8_t* labels, std::size_t count, std::uint8_t* packed) noexcept {
  pack_labels_loop(labels, count, packed);
}

void unpack_labels_avx2(const std::uint8_t* packed, std::size_t count, std::uint8_t* labels) noexcept {
  unpack_labels_loop(packed, count, labels);
}

}  // namespace bitsnap::codec
#endif
