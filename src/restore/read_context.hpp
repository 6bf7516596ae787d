// Working memory and budget of one read: what bounds the work that a hostile file can cause.
//
// A ReadContext belongs to one thread. Decoding a chunk for the sake of another opens a step; steps nest as deep as the
// chain of dependence. Every chunk decoded counts, so that a file cannot fan out without limit.
#pragma once

#include <cstdint>

#include <bitsnap/error.hpp>
#include <bitsnap/limits.hpp>

#include "base/scratch.hpp"

namespace bitsnap {

namespace restore {
class DecodedChunks;
}  // namespace restore

class ReadContext {
 public:
  explicit ReadContext(const DecodeLimits& limits = {}) noexcept
      : max_depth_(limits.chain_depth), max_decodes_(limits.chunk_decodes) {}

  [[nodiscard]] Scratch& scratch() noexcept { return scratch_; }

  // To be called before each read that somebody outside asked for.
  void restart() noexcept {
    depth_ = 0;
    decodes_ = 0;
  }

  // The decoding of one chunk; corrupt if the chain gets too deep, resource_exhausted if the chunks get too many. Only
  // what was entered is to be left.
  [[nodiscard]] Result<void> enter();
  void leave() noexcept { --depth_; }

  // Whether a chunk is being decoded for the sake of another.
  [[nodiscard]] bool is_nested() const noexcept { return depth_ > 0; }

  // From now on what is decoded is remembered, and what is remembered not decoded again. nullptr: no more.
  void use_cache(restore::DecodedChunks* cache) noexcept { cache_ = cache; }
  [[nodiscard]] restore::DecodedChunks* cache() const noexcept { return cache_; }

  // Chunks decoded since restart().
  [[nodiscard]] std::uint32_t decodes() const noexcept { return decodes_; }

 private:
  Scratch scratch_;
  restore::DecodedChunks* cache_ = nullptr;
  std::uint32_t max_depth_;
  std::uint32_t max_decodes_;
  std::uint32_t depth_ = 0;
  std::uint32_t decodes_ = 0;
};

}  // namespace bitsnap
