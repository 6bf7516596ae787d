// Elements in memory with any strides, such as views of torch and numpy, read and written in row-major order.
//
// Needs no GIL. A StridedMemory owns nothing; several threads may read it at once. Offsets are in bytes of the
// row-major order and need not be multiples of an element.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace bitsnap::python {

class StridedMemory {
 public:
  // `strides` in bytes, of any sign; `data` is the element with all indexes 0; item_bytes is 1 to 16.
  StridedMemory(std::byte* data, std::vector<std::uint64_t> shape, std::vector<std::int64_t> strides,
                std::size_t item_bytes);

  // Fills `out` from byte `offset` of the row-major order.
  void read(std::uint64_t offset, std::span<std::byte> out) const;

  // The inverse. No two elements may share memory.
  void write(std::uint64_t offset, std::span<const std::byte> in) const;

 private:
  template <typename Byte>
  void visit(std::uint64_t offset, std::span<Byte> packed) const;
  [[nodiscard]] std::byte* element(std::uint64_t index, std::vector<std::uint64_t>& position) const;

  std::byte* data_;
  std::vector<std::uint64_t> shape_;  // without dimensions of 1; neighbours that are one run are one dimension
  std::vector<std::int64_t> strides_;
  std::size_t item_bytes_;
};

}  // namespace bitsnap::python
