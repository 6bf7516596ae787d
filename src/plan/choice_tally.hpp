// Counts how the chunks of a stream were coded, and prints the counts as the reason that people read.
//
// Used by one thread, in the order of the chunks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <bitsnap/writer.hpp>

namespace bitsnap::plan {

struct Choice;

class ChoiceTally {
 public:
  explicit ChoiceTally(std::size_t candidates = 0) : totals_(candidates) {}

  // `codec`: the one that the chunk was stored with. `like`: the tensor whose choice the chunk followed; empty: none.
  void note(const Choice& choice, std::string_view codec, std::uint64_t raw_bytes, std::string_view like = {});

  // "float_split 41/43, constant 2/43, as layers.0.w". Codecs in the order of their first use.
  [[nodiscard]] std::string used() const;
  // "ratio: float_split 1.9 MB, raw 2.8 MB" or "balanced: float_split 1.9 MB in 1.2 ms, ...": all estimated candidates,
  // the best first. Empty if there were no estimates.
  [[nodiscard]] std::string compared(Objective objective, std::span<const std::string> names) const;
  // Whether any chunk was given to a codec without an estimate.
  [[nodiscard]] bool any_without_estimate() const noexcept { return without_estimate_ > 0; }

 private:
  struct Total {
    std::uint64_t bytes = 0;
    std::uint64_t ps = 0;
    bool was_estimated = false;  // for any chunk
  };
  std::vector<Total> totals_;                                // by candidate; a chunk without its estimate counts as raw
  Total raw_;                                                // of the chunks with estimates
  std::vector<std::pair<std::string, std::uint64_t>> used_;  // codec, chunks
  std::uint64_t chunks_ = 0;
  std::uint64_t without_estimate_ = 0;
  std::string like_;
};

}  // namespace bitsnap::plan
