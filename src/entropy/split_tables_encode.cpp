#include "entropy/split_tables_encode.hpp"

#include <algorithm>

#include "entropy/element_sample_encode.hpp"
#include "entropy/rans_table_encode.hpp"

namespace bitsnap::entropy {
namespace {

// The excess over the entropy of exponents and signs that is accepted, as a part of the elements' bits. Above it, a
// slower form of float_split is worth its time (docs/decisions/0007-lane-coder.md).
constexpr std::uint64_t kMaxLoss = 128;

// The shape of these elements, of which there may be fewer than `shape` says.
SplitShape shape_of(ConstByteSpan elements, const SplitShape& shape) noexcept {
  return {.elements = elements.size() / shape.element_bytes,
          .element_bytes = shape.element_bytes,
          .rotated = shape.rotated,
          .beside_bits = shape.beside_bits};
}

std::uint32_t sum_of(const Histogram& counts) noexcept {
  std::uint32_t sum = 0;
  for (const std::uint32_t count : counts) sum += count;
  return sum;
}

// A lower bound for the cost of the sampled symbols. For elements that are not rotated, the lower bytes contain the
// lowest exponent bit as raw bits, and the symbols contain a sign that is never set; the bound is reduced by what this
// wastes.
std::uint64_t least_cost(ConstByteSpan elements, const SplitShape& shape, std::uint64_t entropy) noexcept {
  if (shape.rotated || shape.element_bytes == 1) return entropy;
  SplitShape rotated = shape_of(elements, shape);
  rotated.rotated = true;
  Histogram counts;
  count_symbols(elements.data(), rotated, counts);
  const std::uint64_t raw_bits = std::uint64_t{sum_of(counts)} << kCostBits;
  const std::uint64_t exponents = entropy_of(counts);
  return exponents > raw_bits ? exponents - raw_bits : 0;
}

}  // namespace

SplitTables choose_split_tables(const SplitSamples& samples, const SplitShape& shape,
                                std::span<RansTable> tables) noexcept {
  if (!rest_looks_random(samples.of_all().data(), shape_of(samples.of_all(), shape))) return {};
  SplitTables all;
  std::uint64_t loss = 0;
  bool any_coded = false;
  for (std::size_t block = 0; block < tables.size(); ++block) {
    const std::size_t elements = std::min(kRansBlockElements, shape.elements - block * kRansBlockElements);
    const ConstByteSpan sample = samples.of_block(block);
    Histogram counts;
    count_symbols(sample.data(), shape_of(sample, shape), counts);
    const RansChoice choice = choose_rans_table(counts);
    tables[block] = choice.table;
    if (choice.table.count == 1 && samples.has_one_symbol(block, shape)) {
      tables[block] = single_rans_table(choice.table.symbols[0]);
      continue;
    }
    any_coded = true;
    all.coded_bits += choice.cost * elements / sum_of(counts) >> kCostBits;
    const std::uint64_t least = least_cost(sample, shape, entropy_of(counts));
    if (choice.cost > least) loss += (choice.cost - least) * elements / sum_of(counts);
  }
  const std::uint64_t bits = std::uint64_t{shape.elements} * (shape.element_bytes * 8 + shape.beside_bits);
  all.are_worth_using = any_coded && (loss >> kCostBits) <= bits / kMaxLoss;
  return all;
}

std::size_t fixed_split_size(const SplitShape& shape, std::span<const RansTable> tables) noexcept {
  std::size_t size = kSplitSizesBytes + shape.rest_bytes() + kRansStateBytes;
  for (const RansTable& table : tables) size += 1 + 2 * table.count;
  return size;
}

}  // namespace bitsnap::entropy
