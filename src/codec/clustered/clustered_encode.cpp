// Encodes clustered: elements as labels and codes of clusters. See spec.md. EncodeContext::clusters names the clusters;
// chunks without clusters are left to other codecs.
#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "base/cpu_dispatch.hpp"
#include "base/float_mode.hpp"
#include "base/spread_runs.hpp"
#include "base/try.hpp"
#include "codec/builtin_codecs.hpp"
#include "codec/clustered/clustered.hpp"
#include "codec/encoder.hpp"

namespace bitsnap::codec {
namespace {

// Larger chunks are estimated from evenly spread runs; for smaller ones the estimate is exact.
constexpr SpreadRuns kClusterRuns{.count = 32, .elements = 256, .alignment = 16};

// Labels and codes of elements, with the clusters of the context.
class Coding {
 public:
  // Precondition: are_clusters(clusters), and a FloatMode is active.
  explicit Coding(std::span<const ClusterExtent> clusters) noexcept
      : boundaries_(boundaries_of(clusters)), scales_(scales_of(clusters)) {}

  // Codes up to kClusteredPart elements; returns whether some are exceptions.
  bool code(const std::uint8_t* elements, std::size_t count, std::uint8_t* labels, std::uint8_t* codes) noexcept {
    kernels<ClusteredKernels>().find_labels(boundaries_, elements, count, labels);
    return kernels<ClusteredKernels>().find_codes(scales_, elements, labels, count, codes, missed_.data());
  }

  // Marks the exceptions of the last code() call.
  [[nodiscard]] std::span<const std::uint8_t> missed(std::size_t count) const noexcept {
    return std::span(missed_).first(count);
  }

 private:
  ClusterBoundaries boundaries_;
  ClusterScales scales_;
  std::array<std::uint8_t, kClusteredPart> missed_;
};

// The labels and codes of a chunk, before unused clusters are removed.
struct Labelled {
  std::span<std::uint8_t> labels;
  std::span<std::uint8_t> codes;
  std::span<std::uint32_t> exceptions;  // indices of elements, ascending
  std::array<bool, kMostClusters> used = {};
};

// nullopt if the exceptions alone make the payload too large. Exceptions have the code 0 and any label.
Result<std::optional<Labelled>> label_chunk(ConstByteSpan data, std::span<const ClusterExtent> clusters,
                                            Scratch& scratch) {
  const std::size_t elements = data.size() / sizeof(float);
  const std::size_t most_exceptions = data.size() / kClusteredExceptionBytes;
  Labelled found;
  BITSNAP_ASSIGN(found.labels, scratch.take_array<std::uint8_t>(elements));
  BITSNAP_ASSIGN(found.codes, scratch.take_array<std::uint8_t>(elements));
  BITSNAP_ASSIGN(const std::span<std::uint32_t> exceptions, scratch.take_array<std::uint32_t>(most_exceptions));
  const FloatMode mode;
  Coding coding(clusters);
  std::size_t count_exceptions = 0;
  for (std::size_t first = 0; first < elements; first += kClusteredPart) {
    const std::size_t count = std::min(kClusteredPart, elements - first);
    std::uint8_t* const labels = found.labels.data() + first;
    // Nearly all parts have no exceptions.
    if (!coding.code(as_u8(data) + first * sizeof(float), count, labels, found.codes.data() + first)) {
      for (std::size_t i = 0; i < count; ++i) found.used[labels[i]] = true;
      continue;
    }
    const std::span<const std::uint8_t> missed = coding.missed(count);
    for (std::size_t i = 0; i < count; ++i) {
      if (missed[i] == 0) {
        found.used[labels[i]] = true;
        continue;
      }
      if (count_exceptions == most_exceptions) return std::optional<Labelled>();
      found.codes[first + i] = 0;
      exceptions[count_exceptions++] = static_cast<std::uint32_t>(first + i);
    }
  }
  found.exceptions = exceptions.first(count_exceptions);
  return std::optional(found);
}

// The expected number of exceptions in a chunk.
std::size_t expect_exceptions(ConstByteSpan data, std::span<const ClusterExtent> clusters) noexcept {
  const std::size_t elements = data.size() / sizeof(float);
  const FloatMode mode;
  Coding coding(clusters);
  std::array<std::uint8_t, kClusterRuns.elements> labels;
  std::array<std::uint8_t, kClusterRuns.elements> codes;
  std::size_t missed = 0;
  for (std::size_t run = 0; run < kClusterRuns.count; ++run) {
    const std::size_t first = kClusterRuns.start(run, elements);
    if (!coding.code(as_u8(data) + first * sizeof(float), kClusterRuns.elements, labels.data(), codes.data())) continue;
    missed += static_cast<std::size_t>(std::ranges::count(coding.missed(kClusterRuns.elements), 1));
  }
  return missed * elements / kClusterRuns.total();
}

class ClusteredEncoder final : public Encoder {
 public:
  ClusteredEncoder() noexcept : Encoder(clustered_decoder()) {}

  bool analyzes_whole_chunks(DType) const noexcept override { return true; }

  Result<std::optional<Estimate>> analyze(ConstByteSpan sample, const EncodeContext& sample_context,
                                          std::size_t elements, Scratch& scratch) const override {
    if (sample_context.elements <= 2 * kClusterRuns.total())
      return Encoder::analyze(sample, sample_context, elements, scratch);
    const std::span<const ClusterExtent> clusters = sample_context.clusters;
    if (!are_clusters(clusters)) return std::nullopt;
    const std::size_t exceptions = expect_exceptions(sample, clusters) * elements / sample_context.elements;
    const std::size_t size = clustered_size(label_bits_of(clusters.size()), clusters.size(), exceptions, elements);
    if (size >= elements * sizeof(float)) return std::nullopt;
    return Estimate{.payload_bytes = size};
  }

  Result<PayloadSize> encode(ConstByteSpan data, const EncodeContext& context, ByteSpan out,
                             Scratch& scratch) const override {
    if (!are_clusters(context.clusters)) return std::nullopt;
    const Scratch::Frame frame(scratch);
    BITSNAP_ASSIGN(std::optional<Labelled> found, label_chunk(data, context.clusters, scratch));
    if (!found) return std::nullopt;

    // The index of each cluster among those that the chunk uses.
    std::array<std::uint8_t, kMostClusters> places = {};
    std::size_t clusters = 0;
    for (std::size_t label = 0; label < context.clusters.size(); ++label) {
      if (found->used[label]) places[label] = static_cast<std::uint8_t>(clusters++);
    }
    const std::size_t label_bits = label_bits_of(clusters);
    const std::size_t size = clustered_size(label_bits, clusters, found->exceptions.size(), context.elements);
    if (clusters == 0 || size >= data.size()) return std::nullopt;
    if (clusters < context.clusters.size()) {
      for (std::uint8_t& label : found->labels) label = places[label];
    }
    for (const std::uint32_t exception : found->exceptions) found->labels[exception] = 0;

    std::byte* at = out.data();
    *at++ = static_cast<std::byte>(label_bits);
    *at++ = static_cast<std::byte>(clusters - 1);
    const auto put = [&at](std::uint32_t word) {
      store_le(at, word);
      at += sizeof word;
    };
    put(static_cast<std::uint32_t>(found->exceptions.size()));
    for (std::size_t label = 0; label < context.clusters.size(); ++label) {
      if (!found->used[label]) continue;
      put(std::bit_cast<std::uint32_t>(context.clusters[label].least));
      put(std::bit_cast<std::uint32_t>(context.clusters[label].greatest));
    }
    for (const std::uint32_t exception : found->exceptions) put(exception);
    for (const std::uint32_t exception : found->exceptions) {
      at = std::copy_n(data.data() + exception * sizeof(float), sizeof(float), at);
    }
    if (label_bits == 4) {
      kernels<ClusteredKernels>().pack_labels(found->labels.data(), context.elements,
                                              reinterpret_cast<std::uint8_t*>(at));
    } else {
      std::memcpy(at, found->labels.data(), context.elements);
    }
    at += label_bytes(label_bits, context.elements);
    std::memcpy(at, found->codes.data(), context.elements);
    return size;
  }
};

}  // namespace

const Encoder& clustered_encoder() noexcept { return only<ClusteredEncoder>(); }

}  // namespace bitsnap::codec
