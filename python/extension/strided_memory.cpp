// Copies in runs along the last dimension, or in squares if another dimension is dense.
#include "strided_memory.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <type_traits>

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

// All functions copy to the packed bytes, or from them if they are const.
template <typename Byte>
void copy_bytes(Byte* packed, std::byte* strided, std::size_t bytes) {
  if constexpr (std::is_const_v<Byte>) {
    std::memcpy(strided, packed, bytes);
  } else {
    std::memcpy(packed, strided, bytes);
  }
}

template <std::size_t kItem, typename Byte>
void copy_rows(Byte* packed, const Rows& area) {
  std::array<std::byte, kSquare * kSquare * kItem> square;
  for (std::size_t first = 0; first < area.columns; first += kSquare) {
    const std::size_t columns = std::min(kSquare, area.columns - first);
    const auto copy_packed = [&] {
      for (std::size_t row = 0; row < area.rows; ++row) {
        copy_bytes(packed + (row * area.columns + first) * kItem, square.data() + row * kSquare * kItem,
                   columns * kItem);
      }
    };
    if constexpr (std::is_const_v<Byte>) copy_packed();
    for (std::size_t i = 0; i < columns; ++i) {
      std::byte* strided = area.strided + static_cast<std::int64_t>(first + i) * area.stride;
      Byte* item = square.data() + i * kItem;
      for (std::size_t row = 0; row < area.rows; ++row, strided += area.row_stride, item += kSquare * kItem) {
        copy_bytes(item, strided, kItem);
      }
    }
    if constexpr (!std::is_const_v<Byte>) copy_packed();
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

template <typename Byte>
void copy_run(Byte* packed, std::byte* strided, std::int64_t stride, std::size_t count, std::size_t item_bytes) {
  if (stride == static_cast<std::int64_t>(item_bytes)) return copy_bytes(packed, strided, count * item_bytes);
  const auto copy_items = [&](auto bytes) {
    for (std::size_t i = 0; i < count; ++i, packed += bytes, strided += stride) copy_bytes(packed, strided, bytes);
  };
  if (!with_item_size(item_bytes,
                      [&]<std::size_t kItem>() { copy_items(std::integral_constant<std::size_t, kItem>()); })) {
    copy_items(item_bytes);
  }
}

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

template <typename Byte>
void StridedMemory::visit(std::uint64_t offset, std::span<Byte> packed) const {
  std::vector<std::uint64_t> position(shape_.size());
  std::uint64_t index = offset / item_bytes_;

  // The range begins within an element.
  const std::size_t skipped = offset % item_bytes_;
  if (skipped != 0 && !packed.empty()) {
    const std::size_t bytes = std::min(item_bytes_ - skipped, packed.size());
    copy_bytes(packed.data(), element(index, position) + skipped, bytes);
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
      const auto copy_area = [&]<std::size_t kItem>() {
        copy_rows<kItem>(packed.data(), {at, stride, strides_[outer], rows, inner});
      };
      if (rows == 1 || !with_item_size(item_bytes_, copy_area)) {
        rows = 1;
        count = std::min(inner - position.back(), left);
        copy_run(packed.data(), at, stride, count, item_bytes_);
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
  if (!packed.empty()) copy_bytes(packed.data(), element(index, position), packed.size());
}

void StridedMemory::read(std::uint64_t offset, std::span<std::byte> out) const { visit(offset, out); }

void StridedMemory::write(std::uint64_t offset, std::span<const std::byte> in) const { visit(offset, in); }

}  // namespace bitsnap::python
