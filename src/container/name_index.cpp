// Sorting and searching by hash and name.
#include "container/name_index.hpp"

#include <algorithm>
#include <bit>
#include <numeric>

#include "base/bytes.hpp"
#include "base/hash.hpp"

namespace bitsnap::container {
namespace {

std::uint32_t hash_of(std::string_view name) noexcept { return static_cast<std::uint32_t>(hash64(as_byte_span(name))); }

std::size_t tensor_of(std::uint64_t entry) noexcept { return static_cast<std::uint32_t>(entry); }

}  // namespace

NameIndex::NameIndex(std::span<const TensorInfo> tensors) : entries_(tensors.size()) {
  // By the highest bits of the hash first, which leaves few entries to each sort.
  const int bits = std::clamp(static_cast<int>(std::bit_width(tensors.size())), 1, 12);
  const int shift = 64 - bits;
  std::vector<std::size_t> ends((std::size_t{1} << bits) + 1);
  std::vector<std::uint64_t> unsorted;
  unsorted.reserve(tensors.size());
  for (const TensorInfo& info : tensors) {
    unsorted.push_back(std::uint64_t{hash_of(info.name)} << 32 | unsorted.size());
    ++ends[(unsorted.back() >> shift) + 1];
  }
  std::partial_sum(ends.begin(), ends.end(), ends.begin());
  for (const std::uint64_t entry : unsorted) entries_[ends[entry >> shift]++] = entry;
  std::size_t first = 0;
  for (const std::size_t end : ends) {
    std::sort(entries_.begin() + static_cast<std::ptrdiff_t>(first),
              entries_.begin() + static_cast<std::ptrdiff_t>(end));
    first = end;
  }
  // Few hashes are equal, unless somebody chose the names so.
  const auto name_of = [&](std::uint64_t entry) -> std::string_view { return tensors[tensor_of(entry)].name; };
  for (auto begin = entries_.begin(); begin != entries_.end();) {
    const auto end =
        std::find_if(begin, entries_.end(), [&](std::uint64_t each) { return each >> 32 != *begin >> 32; });
    if (end - begin > 1) std::ranges::sort(begin, end, {}, name_of);
    begin = end;
  }
}

std::optional<std::size_t> NameIndex::find(std::span<const TensorInfo> tensors, std::string_view name) const noexcept {
  const std::uint32_t hash = hash_of(name);
  const auto is_before = [&](std::uint64_t entry, std::string_view wanted) {
    const auto entry_hash = static_cast<std::uint32_t>(entry >> 32);
    return entry_hash != hash ? entry_hash < hash : std::string_view(tensors[tensor_of(entry)].name) < wanted;
  };
  const auto found = std::lower_bound(entries_.begin(), entries_.end(), name, is_before);
  if (found == entries_.end() || tensors[tensor_of(*found)].name != name) return std::nullopt;
  return tensor_of(*found);
}

std::optional<std::size_t> NameIndex::find_duplicate(std::span<const TensorInfo> tensors) const noexcept {
  const auto is_same = [&](std::uint64_t a, std::uint64_t b) {
    return a >> 32 == b >> 32 && tensors[tensor_of(a)].name == tensors[tensor_of(b)].name;
  };
  const auto found = std::ranges::adjacent_find(entries_, is_same);
  if (found == entries_.end()) return std::nullopt;
  return tensor_of(*found);
}

}  // namespace bitsnap::container
