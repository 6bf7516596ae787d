// Baselines: general-purpose compressors that bitsnap is compared with, each as a Coder of bytes. `bench`, `analyze`
// and the benchmark in bench/ share them; the library does not depend on them.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <bitsnap/coder.hpp>

namespace bitsnap::cli {

using Coders = std::vector<std::shared_ptr<const Coder>>;
using Bytes = std::span<std::byte>;
using ConstBytes = std::span<const std::byte>;

// A compressor on one thread, with its contexts, which are reused from chunk to chunk.
struct ByteFunctions {
  std::function<std::size_t(ConstBytes in, Bytes out)> encode;  // the encoded size, 0 for an error
  std::function<bool(ConstBytes in, Bytes out)> decode;         // false for an error
};

// A coder of bytes: dtype and base make no difference to it.
class ByteCoder final : public Coder {
 public:
  using SizeBound = std::size_t (*)(std::size_t bytes);
  using MakeFunctions = std::function<ByteFunctions()>;

  ByteCoder(std::string name, SizeBound size_bound, MakeFunctions make_functions)
      : name_(std::move(name)), size_bound_(size_bound), make_functions_(std::move(make_functions)) {}

  std::string name() const override { return name_; }
  bool accepts(DType) const noexcept override { return true; }
  std::size_t max_encoded_size(DType dtype, std::size_t elements) const noexcept override {
    return size_bound_(elements * element_size(dtype));
  }
  std::unique_ptr<CoderWorker> make_worker() const override;

 private:
  std::string name_;
  SizeBound size_bound_;
  MakeFunctions make_functions_;
};

[[nodiscard]] std::shared_ptr<const Coder> make_memcpy_coder();  // the ceiling: no coder is faster
[[nodiscard]] std::shared_ptr<const Coder> make_zstd_coder(int level);
[[nodiscard]] std::shared_ptr<const Coder> make_lz4_coder();  // at its default speed

// The baselines of `bench` and `analyze`: zstd at levels 1 and 3, lz4.
[[nodiscard]] Coders baseline_coders();

}  // namespace bitsnap::cli
