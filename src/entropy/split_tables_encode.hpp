// Decides from samples whether split elements are worth coding in lanes, and with which tables: docs/spec/rans.md. The
// same samples give the same tables everywhere, whatever codes the elements then.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/bytes.hpp"
#include "entropy/rans.hpp"
#include "entropy/split_elements.hpp"

namespace bitsnap::entropy {

// The bytes before the lower bytes of the elements: the sizes of the streams, and the number of escapes.
inline constexpr std::size_t kSplitSizesBytes = (kRansGroups + 1) * sizeof(std::uint32_t);

// What is known of the elements: the bytes of all, or of those that count_symbols() would sample.
class SplitSamples {
 public:
  virtual ~SplitSamples() = default;
  [[nodiscard]] virtual ConstByteSpan of_all() const noexcept = 0;
  [[nodiscard]] virtual ConstByteSpan of_block(std::size_t block) const noexcept = 0;
  // Whether all elements of the block, not only the sampled ones, have the same symbol.
  [[nodiscard]] virtual bool has_one_symbol(std::size_t block, const SplitShape& shape) const noexcept = 0;

 protected:
  SplitSamples() = default;
  SplitSamples(const SplitSamples&) = default;
  SplitSamples& operator=(const SplitSamples&) = default;
};

struct SplitTables {
  bool are_worth_using = false;
  std::uint64_t coded_bits = 0;  // of all symbols, estimated from the samples
};

// Chooses the table of each block, if the lower bytes look random. `tables` has one for each block of
// kRansBlockElements elements. Pure.
[[nodiscard]] SplitTables choose_split_tables(const SplitSamples& samples, const SplitShape& shape,
                                              std::span<RansTable> tables) noexcept;

// The bytes of a payload besides the coded symbols and the escapes.
[[nodiscard]] std::size_t fixed_split_size(const SplitShape& shape, std::span<const RansTable> tables) noexcept;

}  // namespace bitsnap::entropy
