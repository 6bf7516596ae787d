// What the benchmark measures in C++: engines that encode and decode one chunk at a time, behind one interface.
//
// An engine is immutable and shared by all threads; a worker belongs to one thread and holds its working memory, so
// that nothing is measured that a careful user would not pay. Never part of the library.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <bitsnap/error.hpp>
#include <bitsnap/tensor.hpp>

#include "base/bytes.hpp"

namespace bitsnap::bench {

// `base` is as long as `data` for engines that use one, else empty.
struct Chunk {
  DType dtype = DType::opaque;
  ConstByteSpan data;
  ConstByteSpan base;
};

class Worker {
 public:
  Worker() = default;
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;
  virtual ~Worker() = default;

  // The size used of `out`; nullopt where the chunk cannot be expressed and is to be stored as it is.
  [[nodiscard]] virtual Result<std::optional<std::size_t>> encode(const Chunk& chunk, ByteSpan out) = 0;
  // `out` is as long as `chunk.data`, which is not looked at.
  [[nodiscard]] virtual Result<void> decode(const Chunk& chunk, ConstByteSpan payload, ByteSpan out) = 0;
};

class Engine {
 public:
  Engine() = default;
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;
  virtual ~Engine() = default;

  [[nodiscard]] virtual std::string name() const = 0;
  [[nodiscard]] virtual bool uses_base() const noexcept = 0;
  [[nodiscard]] virtual bool accepts(DType dtype) const noexcept = 0;
  [[nodiscard]] virtual std::size_t max_encoded_size(DType dtype, std::size_t elements) const noexcept = 0;
  [[nodiscard]] virtual std::unique_ptr<Worker> make_worker(DType dtype, Role role) const = 0;
};

using Engines = std::vector<std::unique_ptr<const Engine>>;

// Each adds to the end; by the files engine_<name>.cpp.
void add_copy_engines(Engines& engines);     // memcpy, and copying past the caches
void add_codec_engines(Engines& engines);    // every codec of the registry that does any coding
void add_policy_engines(Engines& engines);   // the policy lossless: a codec chosen for each chunk
void add_general_engines(Engines& engines);  // zstd, lz4 and bzip2: of bytes, of planes, of planes of the XOR
void add_huff0_engines(Engines& engines);    // ZipNN's method; none where the build has no libzstd.a that fits
void add_bitx_engines(Engines& engines);     // BitX's method

// All of them, made once.
[[nodiscard]] const Engines& all_engines();

}  // namespace bitsnap::bench
