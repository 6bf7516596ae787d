// Decodes clustered: elements from labels and codes of clusters. See spec.md. Works part by part so that labels stay in
// the cache, and inserts the exceptions at the end.
#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "base/cpu_dispatch.hpp"
#include "base/float_mode.hpp"
#include "codec/builtin_codecs.hpp"
#include "codec/clustered/clustered.hpp"
#include "codec/payload_checks.hpp"

namespace bitsnap::codec {
namespace {

// The parts of a payload with valid sizes.
struct ClusteredParts {
  std::size_t label_bits = 0;
  std::size_t cluster_count = 0;
  std::array<ClusterExtent, kMostClusters> all_clusters;
  ConstByteSpan places;
  ConstByteSpan exceptions;
  ConstByteSpan labels;
  ConstByteSpan codes;

  [[nodiscard]] std::span<const ClusterExtent> clusters() const noexcept {
    return std::span(all_clusters).first(cluster_count);
  }
};

Result<ClusteredParts> read_parts(ConstByteSpan payload, std::size_t elements) {
  ClusteredParts parts;
  ByteCursor cursor(payload);
  BITSNAP_ASSIGN(const auto label_bits, cursor.read<std::uint8_t>("clustered payload: bits of a label"));
  if (label_bits != 4 && label_bits != 8) {
    return corrupt("clustered payload: labels have {} bits, expected 4 or 8", label_bits);
  }
  parts.label_bits = label_bits;
  BITSNAP_ASSIGN(const auto last_cluster, cursor.read<std::uint8_t>("clustered payload: number of clusters"));
  parts.cluster_count = std::size_t{last_cluster} + 1;
  if (label_bits == 4 && parts.cluster_count > kFewClusters) {
    return corrupt("clustered payload: {} clusters, expected at most 16 with labels of 4 bits", parts.cluster_count);
  }
  BITSNAP_ASSIGN(const auto exceptions, cursor.read<std::uint32_t>("clustered payload: number of exceptions"));
  if (exceptions > elements) {
    return corrupt("clustered payload: {} exceptions in {} elements", exceptions, elements);
  }
  BITSNAP_TRY(check_payload_size("clustered", payload.size(),
                                 clustered_size(label_bits, parts.cluster_count, exceptions, elements)));
  const auto take = [&](std::size_t size, ConstByteSpan& part) -> Result<void> {
    BITSNAP_ASSIGN(part, cursor.take(size, "clustered payload"));
    return {};
  };
  ConstByteSpan table;
  BITSNAP_TRY(take(parts.cluster_count * kClusterBytes, table));
  BITSNAP_TRY(take(std::size_t{exceptions} * sizeof(std::uint32_t), parts.places));
  BITSNAP_TRY(take(std::size_t{exceptions} * sizeof(std::uint32_t), parts.exceptions));
  BITSNAP_TRY(take(label_bytes(label_bits, elements), parts.labels));
  BITSNAP_TRY(take(elements, parts.codes));
  for (std::size_t i = 0; i < parts.cluster_count; ++i) {
    const std::byte* const at = table.data() + i * kClusterBytes;
    parts.all_clusters[i] = {.least = std::bit_cast<float>(load_le<std::uint32_t>(at)),
                             .greatest = std::bit_cast<float>(load_le<std::uint32_t>(at + sizeof(float)))};
  }
  if (!are_clusters(parts.clusters())) {
    return corrupt("clustered payload: expected clusters of finite numbers in ascending order");
  }
  return parts;
}

Result<void> put_elements(const ClusteredParts& parts, std::size_t elements, ByteSpan out) {
  const FloatMode mode;
  const ClusterScales scales = scales_of(parts.clusters());
  auto* const to = reinterpret_cast<std::uint8_t*>(out.data());
  std::array<std::uint8_t, kClusteredPart> unpacked;
  std::uint8_t most = 0;
  for (std::size_t first = 0; first < elements; first += kClusteredPart) {
    const std::size_t count = std::min(kClusteredPart, elements - first);
    const std::uint8_t* labels = as_u8(parts.labels) + first;
    if (parts.label_bits == 4) {
      kernels<ClusteredKernels>().unpack_labels(as_u8(parts.labels) + first / 2, count, unpacked.data());
      labels = unpacked.data();
    }
    for (std::size_t i = 0; i < count; ++i) most = std::max(most, labels[i]);
    kernels<ClusteredKernels>().put_clustered(scales, labels, as_u8(parts.codes) + first, count,
                                              to + first * sizeof(float));
  }
  if (most >= parts.cluster_count) {
    return corrupt("clustered payload: label {}, expected a label below {}", most, parts.cluster_count);
  }
  return {};
}

Result<void> put_exceptions(const ClusteredParts& parts, std::size_t elements, ByteSpan out) {
  std::size_t next = 0;  // the least valid index of an exception
  for (std::size_t at = 0; at < parts.places.size(); at += sizeof(std::uint32_t)) {
    const std::size_t place = load_le<std::uint32_t>(parts.places.data() + at);
    if (place < next || place >= elements) {
      return corrupt("clustered payload: exception at element {}, expected {} to {}", place, next, elements - 1);
    }
    std::memcpy(out.data() + place * sizeof(float), parts.exceptions.data() + at, sizeof(float));
    next = place + 1;
  }
  return {};
}

class ClusteredDecoder final : public Decoder {
 public:
  ClusteredDecoder() noexcept
      : Decoder(CodecId::clustered, "clustered",
                "numbers of clusters (BitSnap's), as labels of 4 or 8 bits and codes of 8") {}
  bool accepts(DType dtype, std::span<const Input> inputs) const noexcept override {
    return dtype == DType::f32 && inputs.empty();
  }

  Result<void> decode(ConstByteSpan payload, const ChunkContext& context, ByteSpan out, Scratch&) const override {
    BITSNAP_ASSIGN(const ClusteredParts parts, read_parts(payload, context.elements));
    if (parts.label_bits == 4 && context.elements % 2 != 0 && parts.labels.back() > std::byte{15}) {
      return corrupt("clustered payload: bits after the last label are set");
    }
    BITSNAP_TRY(put_elements(parts, context.elements, out));
    return put_exceptions(parts, context.elements, out);
  }
};

}  // namespace

const Decoder& clustered_decoder() noexcept { return only<ClusteredDecoder>(); }

}  // namespace bitsnap::codec
