// Copies in runs along the last dimension, or in squares if another dimension is dense.
#include "strided_memory.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace bitsnap::python {

namespace {

// A transposed matrix is copied in squares of this many elements, so that each cache line is touched once per side.
constexpr std::size_t kSquare = 32;

// `rows` rows of `columns` elements: packed rows are adjacent, strided rows are `row_stride` bytes apart.
struct Rows {
  std::byte* strided;
  std::int64_t stride;
  std::int64_t row_stride;
  std::size_t rows;
  std::size_t columns;
};

template <std::size_t kItem>
void gather_items(std::byte* packed, const std::byte* strided, std::int64_t stride, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i, packed += kItem, strided += stride) std::memcpy(packed, strided, kItem);
}

template <std::size_t kItem>
void scatter_items(const std::byte* packed, std::byte* strided, std::int64_t stride, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i, packed += kItem, strided += stride) std::memcpy(strided, packed, kItem);
}

template <std::size_t kItem>
void gather_rows(std::byte* packed, const Rows& area) {
  std::array<std::byte, kSquare * kSquare * kItem> square;
  for (std::size_t first = 0; first < area.columns; first += kSquare) {
    const std::size_t columns = std::min(kSquare, area.columns - first);
    for (std::size_t i = 0; i < columns; ++i) {
      const std::byte* from = area.strided + static_cast<std::int64_t>(first + i) * area.stride;
      std::byte* to = square.data() + i * kItem;
      for (std::size_t row = 0; row < area.rows; ++row, from += area.row_stride, to += kSquare * kItem) {
        std::memcpy(to, from, kItem);
      }
    }
    for (std::size_t row = 0; row < area.rows; ++row) {
      std::memcpy(packed + (row * area.columns + first) * kItem, square.data() + row * kSquare * kItem,
                  columns * kItem);
    }
  }
}

template <std::size_t kItem>
void scatter_rows(const std::byte* packed, const Rows& area) {
  std::array<std::byte, kSquare * kSquare * kItem> square;
  for (std::size_t first = 0; first < area.columns; first += kSquare) {
    const std::size_t columns = std::min(kSquare, area.columns - first);
    for (std::size_t row = 0; row < area.rows; ++row) {
      std::memcpy(square.data() + row * kSquare * kItem, packed + (row * area.columns + first) * kItem,
                  columns * kItem);
    }
    for (std::size_t i = 0; i < columns; ++i) {
      std::byte* to = area.strided + static_cast<std::int64_t>(first + i) * area.stride;
      const std::byte* from = square.data() + i * kItem;
      for (std::size_t row = 0; row < area.rows; ++row, to += area.row_stride, from += kSquare * kItem) {
        std::memcpy(to, from, kItem);
      }
    }
  }
}

// Calls work<size>() for the known element sizes; returns false for others.
template <typename Work>
bool with_item_size(std::size_t item_bytes, const Work& work) {
  switch (item_bytes) {
    case 1: work.template operator()<1>(); return true;
    case 2: work.template operator()<2>(); return true;
    case 4: work.template operator()<4>(); return true;
    case 8: work.template operator()<8>(); return true;
    case 16: work.template operator()<16>(); return true;
    default: return false;
  }
}

struct Gather {
  void run(std::byte* packed, const std::byte* strided, std::int64_t stride, std::size_t count,
           std::size_t item_bytes) const {
    if (stride == static_cast<std::int64_t>(item_bytes)) {
      std::memcpy(packed, strided, count * item_bytes);
      return;
    }
    if (with_item_size(item_bytes, [&]<std::size_t kItem>() { gather_items<kItem>(packed, strided, stride, count); })) {
      return;
    }
    for (std::size_t i = 0; i < count; ++i, packed += item_bytes, strided += stride) {
      std::memcpy(packed, strided, item_bytes);
    }
  }
  bool rows(std::byte* packed, const Rows& area, std::size_t item_bytes) const {
    return with_item_size(item_bytes, [&]<std::size_t kItem>() { gather_rows<kItem>(packed, area); });
  }
  void part(std::byte* packed, const std::byte* item, std::size_t bytes) const { std::memcpy(packed, item, bytes); }
};

struct Scatter {
  void run(const std::byte* packed, std::byte* strided, std::int64_t stride, std::size_t count,
           std::size_t item_bytes) const {
    if (stride == static_cast<std::int64_t>(item_bytes)) {
      std::memcpy(strided, packed, count * item_bytes);
      return;
    }
    if (with_item_size(item_bytes,
                       [&]<std::size_t kItem>() { scatter_items<kItem>(packed, strided, stride, count); })) {
      return;
    }
    for (std::size_t i = 0; i < count; ++i, packed += item_bytes, strided += stride) {
      std::memcpy(strided, packed, item_bytes);
    }
  }
  bool rows(const std::byte* packed, const Rows& area, std::size_t item_bytes) const {
    return with_item_size(item_bytes, [&]<std::size_t kItem>() { scatter_rows<kItem>(packed, area); });
  }
  void part(const std::byte* packed, std::byte* item, std::size_t bytes) const { std::memcpy(item, packed, bytes); }
};

}  // namespace

StridedMemory::StridedMemory(std::byte* data, std::vector<std::uint64_t> shape, std::vector<std::int64_t> strides,
                             std::size_t item_bytes)
    : data_(data), item_bytes_(item_bytes) {
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] == 1) continue;
    if (!shape_.empty() && strides_.back() == strides[i] * static_cast<std::int64_t>(shape[i])) {
      shape_.back() *= shape[i];
      strides_.back() = strides[i];
    } else {
      shape_.push_back(shape[i]);
      strides_.push_back(strides[i]);
    }
  }
  if (shape_.empty()) {
    shape_.push_back(1);
    strides_.push_back(static_cast<std::int64_t>(item_bytes));
  }
}

std::byte* StridedMemory::element(std::uint64_t index, std::vector<std::uint64_t>& position) const {
  std::byte* at = data_;
  for (std::size_t i = shape_.size(); i-- > 0;) {
    position[i] = index % shape_[i];
    index /= shape_[i];
    at += static_cast<std::int64_t>(position[i]) * strides_[i];
  }
  return at;
}

template <typename Byte, typename Copy>
void StridedMemory::visit(std::uint64_t offset, std::span<Byte> packed, Copy copy) const {
  std::vector<std::uint64_t> position(shape_.size());
  std::uint64_t index = offset / item_bytes_;

  // The range begins within an element.
  const std::size_t skipped = offset % item_bytes_;
  if (skipped != 0 && !packed.empty()) {
    const std::size_t bytes = std::min(item_bytes_ - skipped, packed.size());
    copy.part(packed.data(), element(index, position) + skipped, bytes);
    packed = packed.subspan(bytes);
    ++index;
  }

  const std::uint64_t inner = shape_.back();
  const std::int64_t stride = strides_.back();
  std::uint64_t left = packed.size() / item_bytes_;
  if (left > 0) {
    std::byte* at = element(index, position);
    index += left;
    const std::size_t outer = shape_.size() - 2;  // used with two or more dimensions
    const bool transposed = shape_.size() > 1 && std::abs(strides_[outer]) < std::abs(stride);
    while (true) {
      std::uint64_t rows = 1;
      std::uint64_t count = std::min(inner - position.back(), left);
      if (transposed && count == inner) {
        rows = std::min({left / inner, shape_[outer] - position[outer], std::uint64_t{kSquare}});
        count = rows * inner;
      }
      if (rows == 1 || !copy.rows(packed.data(), {at, stride, strides_[outer], rows, inner}, item_bytes_)) {
        rows = 1;
        count = std::min(inner - position.back(), left);
        copy.run(packed.data(), at, stride, count, item_bytes_);
      }
      packed = packed.subspan(count * item_bytes_);
      left -= count;
      if (left == 0) break;
      // The first element of the row after these.
      at -= static_cast<std::int64_t>(position.back()) * stride;
      position.back() = 0;
      for (std::size_t i = shape_.size() - 1; i-- > 0; rows = 1) {
        at += static_cast<std::int64_t>(rows) * strides_[i];
        position[i] += rows;
        if (position[i] < shape_[i]) break;
        at -= static_cast<std::int64_t>(shape_[i]) * strides_[i];
        position[i] = 0;
      }
    }
  }

  // The range ends within an element.
  if (!packed.empty()) copy.part(packed.data(), element(index, position), packed.size());
}

void StridedMemory::read(std::uint64_t offset, std::span<std::byte> out) const { visit(offset, out, Gather{}); }

void StridedMemory::write(std::uint64_t offset, std::span<const std::byte> in) const { visit(offset, in, Scatter{}); }

}  // namespace bitsnap::python
