#include "interop/torch_tensors/storage_split.hpp"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/checked.hpp"
#include "base/quote_name.hpp"
#include "base/try.hpp"
#include "interop/container/strided_span.hpp"
#include "tensor/box.hpp"

namespace bitsnap::interop {
namespace {

// The bytes that a tensor uses, from the start of its storage.
struct UsedBytes {
  std::size_t tensor = 0;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  bool is_contiguous = false;
};

class StorageSplit {
 public:
  StorageSplit(const TorchObjects& objects, bool is_big_endian, UniqueNames& names, const DecodeLimits& limits)
      : objects_(objects), is_big_endian_(is_big_endian), names_(names), limits_(limits) {}

  Result<Contents> run(std::span<const StorageRange> ranges);

 private:
  Result<std::optional<UsedBytes>> used_bytes(std::size_t index, const StorageRange& range) const;
  Result<void> split(std::size_t storage, const StorageRange& range, std::span<const UsedBytes> used);
  Result<void> add_group(const StorageRange& range, std::span<const UsedBytes> group, std::uint64_t begin,
                         std::uint64_t end);
  Result<void> add_rest(std::size_t storage, const TorchType& type, std::uint64_t offset, std::uint64_t bytes);
  Result<void> add_flat(std::string name, const TorchType& type, std::uint64_t offset, std::uint64_t bytes);
  Result<void> add(std::string name, const TorchType& type, std::vector<std::uint64_t> shape, std::uint64_t offset,
                   std::uint64_t bytes);
  void add_view(const TorchTensor& tensor, std::uint64_t offset);
  TorchType common_type(std::size_t storage, std::span<const UsedBytes> used) const;
  std::string dtype_name_of(const TorchType& type) const {
    return is_big_endian_ ? big_endian_name(type) : std::string(type.name);
  }

  const TorchObjects& objects_;
  bool is_big_endian_;
  UniqueNames& names_;
  const DecodeLimits& limits_;
  Contents contents_;
};

Result<std::optional<UsedBytes>> StorageSplit::used_bytes(std::size_t index, const StorageRange& range) const {
  const TorchTensor& tensor = objects_.tensors[index];
  const std::optional<std::uint64_t> span = strided_span(tensor.shape, tensor.stride);
  if (span == 0U) return std::nullopt;
  // The elements of an unknown type may be anywhere.
  if (tensor.type.bytes == 0) {
    if (range.bytes == 0) return std::nullopt;
    return UsedBytes{.tensor = index, .begin = 0, .end = range.bytes, .is_contiguous = false};
  }
  const auto end = span ? checked_add(tensor.offset, *span) : std::nullopt;
  const auto end_byte = end ? checked_multiply(*end, std::uint64_t{tensor.type.bytes}) : std::nullopt;
  if (!end_byte || *end_byte > range.bytes) {
    return fail(ErrorKind::corrupt,
                fmt::format("tensor {} exceeds its storage of {} bytes", quote_name(tensor.name), range.bytes));
  }
  return UsedBytes{.tensor = index,
                   .begin = tensor.offset * tensor.type.bytes,
                   .end = *end_byte,
                   .is_contiguous = tensor::volume(tensor.shape) == span && is_row_major(tensor.shape, tensor.stride)};
}

Result<void> StorageSplit::add(std::string name, const TorchType& type, std::vector<std::uint64_t> shape,
                               std::uint64_t offset, std::uint64_t bytes) {
  if (contents_.tensors.size() >= limits_.tensors) {
    return fail(ErrorKind::resource_exhausted, fmt::format("more than {} tensors", limits_.tensors));
  }
  FoundTensor& found = contents_.tensors.emplace_back();
  found.offset = offset;
  found.info.name = std::move(name);
  found.info.dtype = is_big_endian_ && type.bytes > 1 ? DType::opaque : type.dtype;
  found.info.dtype_name = dtype_name_of(type);
  found.info.shape = std::move(shape);
  found.info.size_bytes = bytes;
  found.info.role = guess_role(found.info.name, found.info.dtype);
  return {};
}

// One dimension, of bytes if the elements do not fit.
Result<void> StorageSplit::add_flat(std::string name, const TorchType& type, std::uint64_t offset,
                                    std::uint64_t bytes) {
  if (type.bytes == 0 || bytes % type.bytes != 0) {
    return add(std::move(name), torch_storage_type("UntypedStorage"), {bytes}, offset, bytes);
  }
  return add(std::move(name), type, {bytes / type.bytes}, offset, bytes);
}

Result<void> StorageSplit::add_rest(std::size_t storage, const TorchType& type, std::uint64_t offset,
                                    std::uint64_t bytes) {
  if (bytes == 0) return {};
  return add_flat(names_.add(storage_name(objects_, storage)), type, offset, bytes);
}

void StorageSplit::add_view(const TorchTensor& tensor, std::uint64_t offset) {
  if (tensor.type.bytes == 0) return;
  contents_.views.push_back({.name = tensor.name,
                             .dtype_name = dtype_name_of(tensor.type),
                             .shape = tensor.shape,
                             .stride = tensor.stride,
                             .offset = offset,
                             .element_bytes = tensor.type.bytes});
}

// The tensors of `group`, at least one, overlap and are within [begin, end) of the storage.
Result<void> StorageSplit::add_group(const StorageRange& range, std::span<const UsedBytes> group, std::uint64_t begin,
                                     std::uint64_t end) {
  const UsedBytes* owner = nullptr;
  const UsedBytes* first = &group.front();
  for (const UsedBytes& used : group) {
    const bool covers = used.is_contiguous && used.begin == begin && used.end == end;
    if (covers && (owner == nullptr || used.tensor < owner->tensor)) owner = &used;
    if (used.tensor < first->tensor) first = &used;
  }
  const TorchTensor& named = objects_.tensors[(owner != nullptr ? owner : first)->tensor];
  if (owner != nullptr) {
    BITSNAP_TRY(add(named.name, named.type, named.shape, range.offset + begin, end - begin));
  } else {
    BITSNAP_TRY(add_flat(named.name, named.type, range.offset + begin, end - begin));
  }
  for (const UsedBytes& used : group) {
    if (&used == owner) continue;
    const TorchTensor& tensor = objects_.tensors[used.tensor];
    add_view(tensor, range.offset + used.begin);
  }
  return {};
}

// The type of what no tensor uses: that of the storage, or if it has none, that of all its tensors.
TorchType StorageSplit::common_type(std::size_t storage, std::span<const UsedBytes> used) const {
  const TorchType& type = objects_.storages[storage].type;
  if (!type.is_untyped || used.empty()) return type;
  const TorchType& first = objects_.tensors[used.front().tensor].type;
  const bool agree =
      std::ranges::all_of(used, [&](const UsedBytes& each) { return objects_.tensors[each.tensor].type == first; });
  return agree ? first : type;
}

Result<void> StorageSplit::split(std::size_t storage, const StorageRange& range, std::span<const UsedBytes> used) {
  const TorchType type = common_type(storage, used);
  std::uint64_t done = 0;
  for (std::size_t first = 0; first < used.size();) {
    std::uint64_t begin = used[first].begin;
    std::uint64_t end = used[first].end;
    bool is_covered = false;
    std::size_t last = first + 1;
    for (; last < used.size() && used[last].begin < end; ++last) end = std::max(end, used[last].end);
    const std::span<const UsedBytes> group = used.subspan(first, last - first);
    for (const UsedBytes& each : group) {
      is_covered = is_covered || (each.is_contiguous && each.begin == begin && each.end == end);
    }
    if (!is_covered && group.size() == used.size()) {
      begin = 0;
      end = range.bytes;
    }
    BITSNAP_TRY(add_rest(storage, type, range.offset + done, begin - done));
    BITSNAP_TRY(add_group(range, group, begin, end));
    done = end;
    first = last;
  }
  return add_rest(storage, type, range.offset + done, range.bytes - done);
}

Result<Contents> StorageSplit::run(std::span<const StorageRange> ranges) {
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    const TorchStorage& storage = objects_.storages[i];
    const auto bytes = checked_multiply(storage.elements, std::uint64_t{std::max<std::uint8_t>(storage.type.bytes, 1)});
    if (!bytes || *bytes > ranges[i].bytes) {
      return fail(ErrorKind::corrupt, fmt::format("storage {} has {} elements, but {} bytes", quote_name(storage.key),
                                                  storage.elements, ranges[i].bytes));
    }
  }
  std::vector<std::vector<UsedBytes>> used(ranges.size());
  for (std::size_t i = 0; i < objects_.tensors.size(); ++i) {
    const std::size_t storage = objects_.tensors[i].storage;
    BITSNAP_ASSIGN(const std::optional<UsedBytes> bytes, used_bytes(i, ranges[storage]));
    if (bytes) used[storage].push_back(*bytes);
  }
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    std::ranges::sort(used[i], {}, [](const UsedBytes& each) { return std::pair(each.begin, each.tensor); });
    BITSNAP_TRY(split(i, ranges[i], used[i]));
  }
  std::ranges::sort(contents_.tensors, {}, &FoundTensor::offset);
  return std::move(contents_);
}

}  // namespace

Result<Contents> split_storages(const TorchObjects& objects, std::span<const StorageRange> ranges, bool is_big_endian,
                                UniqueNames& names, const DecodeLimits& limits) {
  return StorageSplit(objects, is_big_endian, names, limits).run(ranges);
}

}  // namespace bitsnap::interop
