// Findings of tensors from their counts, and of groups from their tensors.
#include "analyze/count_findings.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <ranges>
#include <string>
#include <vector>

namespace bitsnap::analyze {
namespace {

double share(std::uint64_t part, std::uint64_t whole) noexcept {
  return whole == 0 ? 0.0 : static_cast<double>(part) / static_cast<double>(whole);
}

// Share of elements in which each bit has the value `bit_value`, the most significant bit first.
std::vector<double> share_of_bits(const std::vector<ByteCounts>& planes, std::uint64_t elements,
                                  std::size_t bit_value) {
  std::vector<double> shares;
  for (const ByteCounts& plane : planes | std::views::reverse) {
    for (unsigned bit = 8; bit-- > 0;) {
      std::uint64_t count = 0;
      for (std::size_t byte = 0; byte < plane.size(); ++byte) count += (byte >> bit & 1) == bit_value ? plane[byte] : 0;
      shares.push_back(share(count, elements));
    }
  }
  return shares;
}

std::vector<double> plane_entropies(const std::vector<ByteCounts>& planes) {
  std::vector<double> entropies;
  for (const ByteCounts& plane : planes | std::views::reverse) entropies.push_back(entropy_of(plane));
  return entropies;
}

// Weights of two means by the numbers of elements that they stand for.
struct Weights {
  double before = 0;
  double added = 1;

  Weights(std::uint64_t elements_before, std::uint64_t elements_added) noexcept {
    const auto all = static_cast<double>(elements_before) + static_cast<double>(elements_added);
    if (all == 0) return;
    added = static_cast<double>(elements_added) / all;
    before = static_cast<double>(elements_before) / all;
  }

  void merge(double& mean, double other) const noexcept {
    if (mean != other) mean = before * mean + added * other;
  }
  // The shorter list is extended with zeros.
  void merge(std::vector<double>& means, const std::vector<double>& others) const {
    means.resize(std::max(means.size(), others.size()));
    for (std::size_t i = 0; i < means.size(); ++i) merge(means[i], i < others.size() ? others[i] : 0.0);
  }
  void merge(std::optional<double>& mean, const std::optional<double>& other) const noexcept {
    if (!other) return;
    if (mean) return merge(*mean, *other);
    mean = other;
  }
};

void merge_name(std::string& name, const std::string& other) {
  if (name != other) name = "mix";
}

// Whether there is nothing to merge: the tensor has no findings, or the group gets a copy of its first ones.
template <typename T>
bool is_first_or_absent(std::optional<T>& group, const std::optional<T>& tensor) {
  if (tensor && group) return false;
  if (tensor) group = tensor;
  return true;
}

void merge_changes(std::optional<ChangeFindings>& group, const std::optional<ChangeFindings>& tensor) {
  if (is_first_or_absent(group, tensor)) return;
  const Weights weights(group->elements, tensor->elements);
  weights.merge(group->changed, tensor->changed);
  weights.merge(group->sign_changed, tensor->sign_changed);
  weights.merge(group->same_bits, tensor->same_bits);
  weights.merge(group->xor_entropies, tensor->xor_entropies);
  weights.merge(group->distances, tensor->distances);
  weights.merge(group->delta_entropy, tensor->delta_entropy);
  weights.merge(group->delta_entropy_by_exponent, tensor->delta_entropy_by_exponent);
  group->elements += tensor->elements;
}

void merge_coded(std::vector<CodedFindings>& group, const std::vector<CodedFindings>& tensor) {
  for (const CodedFindings& coded : tensor) {
    const auto found = std::ranges::find_if(
        group, [&](const CodedFindings& own) { return own.coder == coded.coder && own.form == coded.form; });
    if (found == group.end()) {
      group.push_back(coded);
      continue;
    }
    const Weights weights(found->elements, coded.elements);
    weights.merge(found->bits, coded.bits);
    weights.merge(found->expressed, coded.expressed);
    found->elements += coded.elements;
  }
}

void merge_best(std::optional<BestCodec>& group, const std::optional<BestCodec>& tensor) {
  if (is_first_or_absent(group, tensor)) return;
  Weights(group->elements, tensor->elements).merge(group->bits, tensor->bits);
  merge_name(group->codec, tensor->codec);
  group->elements += tensor->elements;
}

void merge_updates(std::optional<UpdateFindings>& group, const std::optional<UpdateFindings>& tensor) {
  if (is_first_or_absent(group, tensor)) return;
  const Weights weights(group->elements, tensor->elements);
  weights.merge(group->mean, tensor->mean);
  weights.merge(group->mean_square, tensor->mean_square);
  weights.merge(group->mean_of_updates, tensor->mean_of_updates);
  weights.merge(group->mean_square_of_updates, tensor->mean_square_of_updates);
  group->largest = std::max(group->largest, tensor->largest);
  group->elements += tensor->elements;
}

void merge_quantizers(std::vector<QuantizerFindings>& group, const std::vector<QuantizerFindings>& tensor) {
  for (const QuantizerFindings& point : tensor) {
    const auto found = std::ranges::find_if(group, [&](const QuantizerFindings& own) {
      return own.quantizer == point.quantizer && own.parameter == point.parameter;
    });
    if (found == group.end()) {
      group.push_back(point);
      continue;
    }
    const Weights weights(found->elements, point.elements);
    weights.merge(found->bits, point.bits);
    weights.merge(found->mean_relative, point.mean_relative);
    weights.merge(found->mean_square, point.mean_square);
    found->max_relative = std::max(found->max_relative, point.max_relative);
    found->max_absolute = std::max(found->max_absolute, point.max_absolute);
    merge_updates(found->update, point.update);
    merge_name(found->codec, point.codec);
    found->elements += point.elements;
    if (point.bits_on_base) {
      found->bits_on_base ? merge_name(found->codec_on_base, point.codec_on_base)
                          : void(found->codec_on_base = point.codec_on_base);
      Weights(found->elements_on_base, point.elements_on_base).merge(found->bits_on_base, point.bits_on_base);
      found->elements_on_base += point.elements_on_base;
    }
  }
}

}  // namespace

double entropy_of(std::span<const std::uint64_t> counts) noexcept {
  std::uint64_t total = 0;
  for (const std::uint64_t count : counts) total += count;
  double bits = 0;
  for (const std::uint64_t count : counts) {
    if (count == 0 || count == total) continue;
    bits += static_cast<double>(count) * std::log2(static_cast<double>(total) / static_cast<double>(count));
  }
  return total == 0 ? 0.0 : bits / static_cast<double>(total);
}

void set_findings(const ElementCounts& counts, DType dtype, std::uint64_t elements, Findings& findings) {
  findings.elements = elements;
  findings.looked_at = counts.elements;
  findings.zeros = share(counts.zeros, counts.elements);
  findings.nans = counts.nans;
  findings.infinities = counts.infinities;
  findings.ones = share_of_bits(counts.planes, counts.elements, 1);
  findings.constant_bits.clear();
  for (const double ones : findings.ones) findings.constant_bits.push_back(ones == 0 || ones == 1 ? 1.0 : 0.0);
  findings.plane_entropies = plane_entropies(counts.planes);
  if (!is_float(dtype)) return;
  std::array<std::uint64_t, 2> signs{};
  for (std::size_t byte = 0; byte < 256; ++byte) signs[byte >> 7] += counts.planes.back()[byte];
  findings.sign_entropy = entropy_of(signs);
  findings.exponent_entropy = entropy_of(counts.exponents);
}

ChangeFindings make_findings(const ChangeCounts& counts, DType dtype, std::uint64_t elements) {
  ChangeFindings findings;
  findings.elements = elements;
  findings.changed = share(counts.changed, counts.elements);
  findings.sign_changed = share(counts.sign_changed, counts.elements);
  findings.same_bits = share_of_bits(counts.planes, counts.elements, 0);
  findings.xor_entropies = plane_entropies(counts.planes);
  if (counts.differences.empty()) return findings;
  std::size_t used = counts.distances.size();
  while (used > 1 && counts.distances[used - 1] == 0) --used;
  for (std::size_t i = 0; i < used; ++i) findings.distances.push_back(share(counts.distances[i], counts.elements));
  const double low_bits = share(counts.low_bits, counts.elements);
  std::vector<std::uint64_t> symbols(kDifferenceSymbols);
  double by_context = 0;
  for (const std::vector<std::uint64_t>& context : counts.differences) {
    if (context.empty()) continue;
    std::uint64_t in_context = 0;
    for (std::size_t i = 0; i < kDifferenceSymbols; ++i) {
      symbols[i] += context[i];
      in_context += context[i];
    }
    by_context += share(in_context, counts.elements) * entropy_of(context);
  }
  findings.delta_entropy = entropy_of(symbols) + low_bits;
  if (is_float(dtype)) findings.delta_entropy_by_exponent = by_context + low_bits;
  return findings;
}

void merge_findings(Findings& group, const Findings& tensor) {
  const Weights weights(group.elements, tensor.elements);
  weights.merge(group.zeros, tensor.zeros);
  weights.merge(group.ones, tensor.ones);
  weights.merge(group.constant_bits, tensor.constant_bits);
  weights.merge(group.plane_entropies, tensor.plane_entropies);
  weights.merge(group.sign_entropy, tensor.sign_entropy);
  weights.merge(group.exponent_entropy, tensor.exponent_entropy);
  group.elements += tensor.elements;
  group.looked_at += tensor.looked_at;
  group.nans += tensor.nans;
  group.infinities += tensor.infinities;
  merge_changes(group.change, tensor.change);
  merge_coded(group.codecs, tensor.codecs);
  merge_coded(group.baselines, tensor.baselines);
  merge_best(group.best_alone, tensor.best_alone);
  merge_best(group.best_on_base, tensor.best_on_base);
  merge_quantizers(group.quantizers, tensor.quantizers);
}

}  // namespace bitsnap::analyze
