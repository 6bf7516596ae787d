// Elements as labels and codes of clusters, for the baseline of every machine.
#include "codec/clustered/clustered_kernel.hpp"

#include "codec/clustered/clustered_loop.hpp"

namespace bitsnap::codec {

void find_labels_scalar(const ClusterBoundaries& boundaries, const std::uint8_t* elements, std::size_t count,
                        std::uint8_t* labels) noexcept {
  find_labels_loop(boundaries, elements, count, labels);
}

bool find_codes_scalar(const ClusterScales& scales, const std::uint8_t* elements, const std::uint8_t* labels,
                       std::size_t count, std::uint8_t* codes, std::uint8_t* missed) noexcept {
  return find_codes_loop(scales, elements, labels, count, codes, missed);
}

void put_clustered_scalar(const ClusterScales& scales, const std::uint8_t* labels, const std::uint8_t* codes,
                          std::size_t count, std::uint8_t* out) noexcept {
  put_clustered_loop(scales, labels, codes, count, out);
}

void pack_labels_scalar(const std::uint8_t* labels, std::size_t count, std::uint8_t* packed) noexcept {
  pack_labels_loop(labels, count, packed);
}

void unpack_labels_scalar(const std::uint8_t* packed, std::size_t count, std::uint8_t* labels) noexcept {
  unpack_labels_loop(packed, count, labels);
}

}  // namespace bitsnap::codec
