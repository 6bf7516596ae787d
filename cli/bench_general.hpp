// General engines: coders of bytes that know nothing of tensors, and the one way to make an engine of each.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <bitsnap/error.hpp>

namespace bitsnap::cli {

// Working memory of one thread.
class ByteCoderState {
 public:
  virtual ~ByteCoderState() = default;

  [[nodiscard]] virtual Result<std::size_t> encode(std::span<const std::byte> in, std::span<std::byte> out) = 0;
  // `out` has exactly the size of what was encoded.
  [[nodiscard]] virtual Result<void> decode(std::span<const std::byte> in, std::span<std::byte> out) = 0;
};

class ByteCoder {
 public:
  virtual ~ByteCoder() = default;

  [[nodiscard]] virtual std::string name() const = 0;
  [[nodiscard]] virtual std::size_t max_encoded_size(std::size_t bytes) const noexcept = 0;
  [[nodiscard]] virtual std::unique_ptr<ByteCoderState> make_state() const = 0;
};

[[nodiscard]] std::shared_ptr<const ByteCoder> make_memcpy_coder();         // bench_memcpy.cpp: the ceiling
[[nodiscard]] std::shared_ptr<const ByteCoder> make_zstd_coder(int level);  // bench_zstd.cpp
[[nodiscard]] std::shared_ptr<const ByteCoder> make_lz4_coder();            // bench_lz4.cpp
[[nodiscard]] std::shared_ptr<const ByteCoder> make_bzip2_coder();          // bench_bzip2.cpp: level 9

// Those that bitsnap is compared with, without memcpy. bench_general.cpp.
[[nodiscard]] std::vector<std::shared_ptr<const ByteCoder>> general_coders();

}  // namespace bitsnap::cli
