// What became of a stream's chunks, and what spoke for it: the reason that people read.
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

  // `codec`: what was used in the end. `like`: the other tensor whose chunk this one followed; empty: none.
  void note(const Choice& choice, std::string_view codec, std::uint64_t raw_bytes, std::string_view like = {});

  // "float_split 41/43, constant 2/43, as layers.0.w". The names in the order in which they were first used.
  [[nodiscard]] std::string used() const;
  // "ratio: float_split 1.9 MB, raw 2.8 MB", or with the time "balanced: float_split 1.9 MB in 1.2 ms, ...": all that
  // were estimated, the best first. Empty where nothing was.
  [[nodiscard]] std::string compared(Objective objective, std::span<const std::string> names) const;
  // Whether a chunk was given to a codec without a look at any other.
  [[nodiscard]] bool any_clear() const noexcept { return clear_ > 0; }

 private:
  struct Total {
    std::uint64_t bytes = 0;
    std::uint64_t ps = 0;
    bool was_estimated = false;  // for any chunk
  };
  std::vector<Total> totals_;                                // per candidate; raw's where it was not estimated
  Total raw_;                                                // of the chunks that something was estimated for
  std::vector<std::pair<std::string, std::uint64_t>> used_;  // codec, chunks
  std::uint64_t chunks_ = 0;
  std::uint64_t clear_ = 0;
  std::string like_;
};

}  // namespace bitsnap::plan
