#include "interop/state/shard_assembly.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <mutex>
#include <numeric>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/checked.hpp"
#include "base/quote_name.hpp"
#include "base/try.hpp"
#include "interop/container/strided_span.hpp"

namespace bitsnap::interop {
namespace {

using Extents = std::vector<std::uint64_t>;

// A part as rows: runs of elements that lie together in the whole tensor as well.
struct Rows {
  std::uint64_t count = 1;
  std::uint64_t elements = 1;  // of one row
};

class Assembly {
 public:
  Assembly(Extents shape, std::uint64_t element_bytes, std::vector<PartSource> parts)
      : shape_(std::move(shape)), element_bytes_(element_bytes), parts_(std::move(parts)) {
    for (const PartSource& part : parts_) rows_.push_back(rows_of(part));
  }

  [[nodiscard]] Result<void> read(std::uint64_t offset, ByteSpan out) const {
    for (std::size_t part = 0; part < parts_.size(); ++part) BITSNAP_TRY(read_part(part, offset, out));
    return {};
  }

 private:
  // Dimensions that a part covers whole, from the last one on, lie together.
  [[nodiscard]] Rows rows_of(const PartSource& part) const {
    Rows rows;
    std::size_t i = shape_.size();
    while (i > 0) {
      --i;
      rows.elements *= part.box.extent[i];
      if (part.box.extent[i] != shape_[i]) break;
    }
    for (; i > 0; --i) rows.count *= part.box.extent[i - 1];
    return rows;
  }

  // Where a row of the part begins in the whole tensor, in elements.
  [[nodiscard]] std::uint64_t row_begin(const PartSource& part, const Rows& rows, std::uint64_t row) const {
    std::uint64_t at = row * rows.elements;  // in the part
    std::uint64_t begin = 0;
    std::uint64_t stride = 1;
    for (std::size_t i = shape_.size(); i-- > 0;) {
      begin += (at % part.box.extent[i] + part.box.offset[i]) * stride;
      at /= part.box.extent[i];
      stride *= shape_[i];
    }
    return begin;
  }

  Result<void> read_part(std::size_t index, std::uint64_t offset, ByteSpan out) const {
    const PartSource& part = parts_[index];
    const Rows& rows = rows_[index];
    const std::uint64_t row_bytes = rows.elements * element_bytes_;
    const std::uint64_t end = offset + out.size();
    const auto begin_of = [&](std::uint64_t row) { return row_begin(part, rows, row) * element_bytes_; };
    // Rows lie in the whole tensor in their order.
    const auto first_from = [&](std::uint64_t byte) {
      std::uint64_t low = 0;
      for (std::uint64_t high = rows.count; low < high;) {
        const std::uint64_t middle = low + (high - low) / 2;
        if (begin_of(middle) < byte) {
          low = middle + 1;
        } else {
          high = middle;
        }
      }
      return low;
    };
    std::uint64_t first = first_from(offset);
    if (first > 0 && begin_of(first - 1) + row_bytes > offset) --first;
    const std::uint64_t last = first_from(end);
    if (first >= last) return {};
    // What the rows hold of the range lies together in the part.
    const std::uint64_t skipped = offset - std::min(offset, begin_of(first));
    const std::uint64_t begin = first * row_bytes + skipped;
    const std::uint64_t last_begin = begin_of(last - 1);
    const std::uint64_t part_end = (last - 1) * row_bytes + std::min(row_bytes, end - last_begin);
    if (last - first == 1) {
      const std::uint64_t at = begin_of(first) + skipped - offset;
      return part.read(begin, out.subspan(static_cast<std::size_t>(at), static_cast<std::size_t>(part_end - begin)));
    }
    std::vector<std::byte> bytes(static_cast<std::size_t>(part_end - begin));
    BITSNAP_TRY(part.read(begin, bytes));
    const std::byte* from = bytes.data();
    for (std::uint64_t row = first; row < last; ++row) {
      const std::uint64_t row_at = begin_of(row);
      const std::uint64_t from_byte = std::max(row_at, offset);
      const auto count = static_cast<std::size_t>(std::min(row_at + row_bytes, end) - from_byte);
      std::memcpy(out.data() + (from_byte - offset), from, count);
      from += count;
    }
    return {};
  }

  Extents shape_;
  std::uint64_t element_bytes_;
  std::vector<PartSource> parts_;
  std::vector<Rows> rows_;
};

Error not_covered(const TensorInfo& info, std::string_view what) {
  return {ErrorKind::invalid_argument,
          fmt::format("tensor {} of shape [{}]: {}", quote_name(info.name), fmt::join(info.shape, ", "), what)};
}

Result<void> check_part(const TensorInfo& info, const PartSource& part) {
  if (tensor::lies_in(part.box, info.shape)) return {};
  return tl::unexpected(
      not_covered(info, fmt::format("the part of shape [{}] at [{}] does not lie in it",
                                    fmt::join(part.box.extent, ", "), fmt::join(part.box.offset, ", "))));
}

// Parts by offset, each once, without empty ones.
void sort_parts(std::vector<PartSource>& parts) {
  std::erase_if(parts,
                [](const PartSource& part) { return std::ranges::find(part.box.extent, 0U) != part.box.extent.end(); });
  std::ranges::sort(parts, {}, &PartSource::box);
  const auto twice = std::ranges::unique(parts, {}, &PartSource::box);
  parts.erase(twice.begin(), twice.end());
}

Result<void> check_coverage(const TensorInfo& info, const std::vector<PartSource>& parts) {
  std::vector<tensor::Box> boxes;
  boxes.reserve(parts.size());
  for (const PartSource& part : parts) boxes.push_back(part.box);
  const tensor::Coverage coverage = tensor::cover(boxes);
  if (coverage.has_too_many) return tl::unexpected(not_covered(info, "it has too many parts"));
  if (coverage.overlap) {
    return tl::unexpected(not_covered(
        info, fmt::format("the parts at [{}] and [{}] overlap", fmt::join(boxes[coverage.overlap->first].offset, ", "),
                          fmt::join(boxes[coverage.overlap->second].offset, ", "))));
  }
  const std::uint64_t elements = tensor::volume(info.shape).value_or(0);
  if (coverage.covered == elements) return {};
  return tl::unexpected(not_covered(info, fmt::format("its parts hold {} of {} elements", coverage.covered, elements)));
}

}  // namespace

Result<TensorSource> assemble(TensorInfo info, std::vector<PartSource> parts) {
  const auto elements = tensor::volume(info.shape);
  if (!elements) return tl::unexpected(not_covered(info, "it has too many elements"));
  for (const PartSource& part : parts) BITSNAP_TRY(check_part(info, part));
  sort_parts(parts);
  BITSNAP_TRY(check_coverage(info, parts));
  const std::uint64_t element_bytes = *elements == 0 ? 1 : info.size_bytes / *elements;
  if (element_bytes * *elements != info.size_bytes) {
    return fail(ErrorKind::unsupported, fmt::format("tensor {}: its elements of type {} are no whole bytes",
                                                    quote_name(info.name), info.dtype_name));
  }
  TensorSource source;
  if (parts.size() == 1) {
    source.read = std::move(parts.front().read);
  } else {
    source.read = [assembly = std::make_shared<const Assembly>(info.shape, element_bytes, std::move(parts))](
                      std::uint64_t offset, ByteSpan out) { return assembly->read(offset, out); };
  }
  source.info = std::move(info);
  source.info.shard.reset();
  return source;
}

Result<void> PartedTensors::add(const std::string& name, TensorSource part) {
  TensorInfo& info = part.info;
  const std::vector<std::uint64_t>& shape = info.shard ? info.shard->global_shape : info.shape;
  const auto [found, is_new] = numbers_.try_emplace(name, wholes_.size());
  if (is_new) {
    TensorInfo& whole = wholes_.emplace_back().info;
    BITSNAP_ASSIGN(const std::uint64_t all, shape_size_bytes(DType::u8, shape));
    BITSNAP_ASSIGN(const std::uint64_t own, shape_size_bytes(DType::u8, info.shape));
    whole = {.name = name,
             .dtype = info.dtype,
             .dtype_name = info.dtype_name,
             .shape = shape,
             .size_bytes = all * (own == 0 ? element_size(info.dtype) : info.size_bytes / own),
             .role = info.role,
             .shard = {},
             .alias_of = {}};
  }
  auto& [whole, parts] = wholes_[found->second];
  if (info.dtype_name != whole.dtype_name || shape != whole.shape) {
    return fail(ErrorKind::corrupt,
                fmt::format("tensor {}: its parts disagree: {} of shape [{}], and {} of shape [{}]", quote_name(name),
                            whole.dtype_name, fmt::join(whole.shape, ", "), info.dtype_name, fmt::join(shape, ", ")));
  }
  Extents offset = info.shard ? std::move(info.shard->offset) : Extents(shape.size());
  parts.push_back({{std::move(offset), std::move(info.shape)}, std::move(part.read)});
  return {};
}

Result<std::vector<TensorSource>> PartedTensors::take() {
  std::vector<TensorSource> tensors;
  for (auto& [info, parts] : wholes_) {
    BITSNAP_ASSIGN(TensorSource tensor, assemble(std::move(info), std::move(parts)));
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

class StridedCache {
 public:
  std::mutex mutex;
  std::uint64_t tensors = 0;  // that use the cache
  std::uint64_t owner = 0;    // number of the tensor in `bytes`, from 1; 0: none
  std::vector<std::byte> bytes;
};

std::shared_ptr<StridedCache> make_strided_cache() { return std::make_shared<StridedCache>(); }

namespace {

// Copies elements [first, first + out.size() / element_bytes) of a tensor that lies in `from` with strides.
void gather(const Extents& shape, const Extents& stride, std::uint64_t element_bytes, ConstByteSpan from,
            std::uint64_t first, ByteSpan out) {
  Extents index(shape.size());
  std::uint64_t rest = first;
  for (std::size_t i = shape.size(); i-- > 0;) {
    index[i] = rest % shape[i];
    rest /= shape[i];
  }
  for (std::size_t at = 0; at < out.size(); at += element_bytes) {
    const std::uint64_t element = std::inner_product(index.begin(), index.end(), stride.begin(), std::uint64_t{0});
    std::memcpy(out.data() + at, from.data() + element * element_bytes, static_cast<std::size_t>(element_bytes));
    for (std::size_t i = shape.size(); i > 0; --i) {
      if (++index[i - 1] < shape[i - 1]) break;
      index[i - 1] = 0;
    }
  }
}

}  // namespace

Result<ReadBytes> row_major(std::vector<std::uint64_t> shape, std::vector<std::uint64_t> stride,
                            std::uint64_t element_bytes, ReadBytes read, std::shared_ptr<StridedCache> cache) {
  const std::optional<std::uint64_t> span = strided_span(shape, stride);
  if (span == 0U) return ReadBytes([](std::uint64_t, ByteSpan) { return Result<void>(); });
  const auto bytes = span ? checked_multiply(*span, element_bytes) : std::nullopt;
  if (!bytes || !tensor::volume(shape)) return fail(ErrorKind::invalid_argument, "the sizes of a tensor overflow");
  if (is_row_major(shape, stride)) return read;
  std::uint64_t number = 0;
  {
    const std::lock_guard lock(cache->mutex);
    number = ++cache->tensors;
  }
  return ReadBytes([shape = std::move(shape), stride = std::move(stride), element_bytes, bytes = *bytes, number,
                    read = std::move(read),
                    cache = std::move(cache)](std::uint64_t offset, ByteSpan out) -> Result<void> {
    const std::lock_guard lock(cache->mutex);
    if (cache->owner != number) {
      cache->owner = 0;
      cache->bytes.resize(static_cast<std::size_t>(bytes));
      BITSNAP_TRY(read(0, cache->bytes));
      cache->owner = number;
    }
    gather(shape, stride, element_bytes, cache->bytes, offset / element_bytes, out);
    return {};
  });
}

}  // namespace bitsnap::interop
