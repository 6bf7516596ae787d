#include "restore/box_copy.hpp"

#include <algorithm>
#include <cstring>

namespace bitsnap::restore {
namespace {

// `rows` runs of `size` bytes. A size that the compiler knows makes short copies several times as fast.
template <std::size_t kSize>
void copy_rows(const std::byte* from, std::uint64_t pitch, std::byte* to, std::int64_t stride, std::uint64_t rows,
               std::size_t size) {
  for (std::uint64_t row = 0; row < rows; ++row) {
    std::memcpy(to, from, kSize == 0 ? size : kSize);
    from += pitch;
    to += stride;
  }
}

void copy_rows_of(std::size_t size, const std::byte* from, std::uint64_t pitch, std::byte* to, std::int64_t stride,
                  std::uint64_t rows) {
  switch (size) {
    case 1: return copy_rows<1>(from, pitch, to, stride, rows, size);
    case 2: return copy_rows<2>(from, pitch, to, stride, rows, size);
    case 4: return copy_rows<4>(from, pitch, to, stride, rows, size);
    case 8: return copy_rows<8>(from, pitch, to, stride, rows, size);
    case 16: return copy_rows<16>(from, pitch, to, stride, rows, size);
    default: return copy_rows<0>(from, pitch, to, stride, rows, size);
  }
}

}  // namespace

BoxCopy::BoxCopy(std::span<const std::uint64_t> shape, const tensor::Box& box, std::uint64_t item_bytes, std::byte* out,
                 std::span<const std::int64_t> strides)
    : out_(out) {
  // From the last dimension on; reversed at the end.
  dimensions_.push_back({item_bytes, 0, item_bytes, 1, 1});
  std::uint64_t pitch = item_bytes;
  for (std::size_t i = shape.size(); i-- > 0;) {
    Dimension& inner = dimensions_.back();
    const bool is_whole = inner.offset == 0 && inner.extent == inner.shape;
    const bool is_adjacent = box.extent[i] == 1 || strides[i] == inner.stride * static_cast<std::int64_t>(inner.extent);
    if (is_whole && is_adjacent) {
      inner = {inner.shape * shape[i], inner.shape * box.offset[i], inner.extent * box.extent[i], inner.stride,
               inner.pitch};
    } else {
      dimensions_.push_back({shape[i], box.offset[i], box.extent[i], strides[i], pitch});
    }
    pitch *= shape[i];
  }
  std::ranges::reverse(dimensions_);
}

bool BoxCopy::seek(std::uint64_t byte, Position& position) const {
  const std::size_t last = dimensions_.size() - 1;
  position.index.assign(last, 0);
  bool is_beyond = false;  // in the dimension where the walk ended
  std::size_t end = 0;     // of the dimensions whose index is known
  for (; end <= last; ++end) {
    const Dimension& dimension = dimensions_[end];
    std::uint64_t at = byte / dimension.pitch;
    if (end > 0) at %= dimension.shape;
    if (at < dimension.offset) break;
    is_beyond = at - dimension.offset >= dimension.extent;
    if (is_beyond) break;
    if (end < last) position.index[end] = at - dimension.offset;
  }
  if (is_beyond) {
    // The next index of the dimensions before.
    std::size_t i = std::min(end, last);
    for (;; --i) {
      if (i == 0) return false;
      if (++position.index[i - 1] < dimensions_[i - 1].extent) break;
      position.index[i - 1] = 0;
    }
  }
  position.begin = dimensions_[last].offset;
  position.out = out_;
  for (std::size_t i = 0; i < last; ++i) {
    position.begin += (dimensions_[i].offset + position.index[i]) * dimensions_[i].pitch;
    position.out += static_cast<std::int64_t>(position.index[i]) * dimensions_[i].stride;
  }
  return true;
}

bool BoxCopy::advance(std::uint64_t rows, Position& position) const {
  for (std::size_t i = dimensions_.size() - 1; i > 0; --i, rows = 1) {
    const Dimension& dimension = dimensions_[i - 1];
    std::uint64_t& index = position.index[i - 1];
    index += rows;
    position.begin += rows * dimension.pitch;
    position.out += static_cast<std::int64_t>(rows) * dimension.stride;
    if (index < dimension.extent) return true;
    position.begin -= index * dimension.pitch;
    position.out -= static_cast<std::int64_t>(index) * dimension.stride;
    index = 0;
  }
  return false;
}

std::optional<std::uint64_t> BoxCopy::next(std::uint64_t byte) const {
  Position position;
  if (!seek(byte, position)) return std::nullopt;
  return std::max(byte, position.begin);
}

std::optional<BoxCopy::Run> BoxCopy::only_run(std::uint64_t begin, std::uint64_t end) const {
  Position position;
  if (!seek(begin, position) || position.begin >= end) return std::nullopt;
  const std::uint64_t from = std::max(begin, position.begin);
  const std::uint64_t to = std::min(end, position.begin + run_bytes());
  const Run run{from, to - from, position.out + (from - position.begin)};
  if (advance(1, position) && position.begin < end) return std::nullopt;
  return run;
}

std::uint64_t BoxCopy::copy(std::uint64_t begin, ConstByteSpan bytes) const {
  Position position;
  if (!seek(begin, position)) return 0;
  const std::uint64_t end = begin + bytes.size();
  const std::uint64_t size = run_bytes();
  const std::size_t rows_dimension = dimensions_.size() - 2;  // if there are two dimensions or more
  std::uint64_t copied = 0;
  bool is_there = true;
  while (is_there && position.begin < end) {
    std::uint64_t rows = 1;
    if (position.begin >= begin && position.begin + size <= end && !position.index.empty()) {
      const Dimension& dimension = dimensions_[rows_dimension];
      rows = std::min(dimension.extent - position.index[rows_dimension],
                      (end - position.begin - size) / dimension.pitch + 1);
      copy_rows_of(static_cast<std::size_t>(size), bytes.data() + (position.begin - begin), dimension.pitch,
                   position.out, dimension.stride, rows);
      copied += rows * size;
    } else {
      // The range begins or ends within the run, or there is one run only.
      const std::uint64_t from = std::max(begin, position.begin);
      const std::uint64_t to = std::min(end, position.begin + size);
      std::memcpy(position.out + (from - position.begin), bytes.data() + (from - begin),
                  static_cast<std::size_t>(to - from));
      copied += to - from;
    }
    is_there = advance(rows, position);
  }
  return copied;
}

}  // namespace bitsnap::restore
