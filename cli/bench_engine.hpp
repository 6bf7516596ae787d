// What `bench` measures: engines that encode and decode one chunk at a time, each behind the same interface.
//
// An engine is shared by all threads and immutable; a worker belongs to one thread and holds its working memory, so
// that a measurement sees no allocation that a careful user would not have.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <bitsnap/dtype.hpp>
#include <bitsnap/error.hpp>

namespace bitsnap::cli {

// A chunk to be coded. `base` is empty or as long as `data`.
struct BenchChunk {
  DType dtype = DType::opaque;
  std::span<const std::byte> data;
  std::span<const std::byte> base;
};

class BenchWorker {
 public:
  virtual ~BenchWorker() = default;

  // The size used of `out`. An error means that this engine cannot express this chunk.
  [[nodiscard]] virtual Result<std::size_t> encode(const BenchChunk& chunk, std::span<std::byte> out) = 0;
  // `out` is as long as `chunk.data`, which is not looked at.
  [[nodiscard]] virtual Result<void> decode(const BenchChunk& chunk, std::span<const std::byte> payload,
                                            std::span<std::byte> out) = 0;
};

class BenchEngine {
 public:
  virtual ~BenchEngine() = default;

  [[nodiscard]] virtual const std::string& name() const noexcept = 0;
  [[nodiscard]] virtual bool accepts(const BenchChunk& chunk) const noexcept = 0;
  [[nodiscard]] virtual Result<std::size_t> max_encoded_size(const BenchChunk& chunk) const = 0;
  [[nodiscard]] virtual std::unique_ptr<BenchWorker> make_worker() const = 0;
};

using BenchEngines = std::vector<std::unique_ptr<BenchEngine>>;

// Both add to the end; engines that need a base only `with_base`. bench_codecs.cpp:
void add_codec_engines(BenchEngines& engines, bool with_base);
// bench_general.cpp:
void add_general_engines(BenchEngines& engines, bool with_base);

}  // namespace bitsnap::cli
