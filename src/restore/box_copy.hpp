// BoxCopy: copies a box of a tensor, chunk by chunk, into memory of any strides.
//
// The tensor is seen as bytes in row-major order. A run is a sequence of bytes of the box that are adjacent in the
// tensor and in memory; dimensions that make longer runs together are merged. Owns no memory. Immutable; any number of
// threads may copy different parts at the same time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/bytes.hpp"
#include "tensor/box.hpp"

namespace bitsnap::restore {

class BoxCopy {
 public:
  // `out` is the memory of the first element of the box, and `strides` the bytes between neighbours in each dimension,
  // of any sign. Preconditions: the box lies in `shape` and is not empty; there is a stride for each dimension.
  BoxCopy(std::span<const std::uint64_t> shape, const tensor::Box& box, std::uint64_t item_bytes, std::byte* out,
          std::span<const std::int64_t> strides);

  // The first byte from `byte` on that belongs to the box; nullopt: there is none.
  [[nodiscard]] std::optional<std::uint64_t> next(std::uint64_t byte) const;

  // The bytes of the box in a range, if they are one run.
  struct Run {
    std::uint64_t begin = 0;  // in the tensor
    std::uint64_t size = 0;
    std::byte* out = nullptr;
  };
  // nullopt if the range holds several runs, or none.
  [[nodiscard]] std::optional<Run> only_run(std::uint64_t begin, std::uint64_t end) const;

  // Copies the bytes of the box that are in `bytes`, which begin at byte `begin` of the tensor. Returns their number.
  std::uint64_t copy(std::uint64_t begin, ConstByteSpan bytes) const;

 private:
  struct Dimension {
    std::uint64_t shape = 0;
    std::uint64_t offset = 0;
    std::uint64_t extent = 0;
    std::int64_t stride = 0;
    std::uint64_t pitch = 0;  // bytes in the tensor between neighbours
  };
  // A run of the box.
  struct Position {
    std::vector<std::uint64_t> index;  // in the box, for all dimensions but the last
    std::uint64_t begin = 0;           // in the tensor
    std::byte* out = nullptr;
  };

  [[nodiscard]] std::uint64_t run_bytes() const noexcept { return dimensions_.back().extent; }
  // The first run that ends behind `byte`; false: there is none.
  [[nodiscard]] bool seek(std::uint64_t byte, Position& position) const;
  // `rows` runs further, all in the same row of the last but one dimension. False after the last run.
  [[nodiscard]] bool advance(std::uint64_t rows, Position& position) const;

  std::byte* out_;
  std::vector<Dimension> dimensions_;  // the last one is the bytes of a run
};

}  // namespace bitsnap::restore
