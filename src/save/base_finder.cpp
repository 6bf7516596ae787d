// Matches tensors and pools, and orders the search through shards.
#include "save/base_finder.hpp"

#include <algorithm>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "base/try.hpp"

namespace bitsnap::save {
namespace {

std::optional<BaseStream> if_alike(const std::shared_ptr<const Base>& base, std::size_t match,
                                   const StreamInfo& stream) {
  const StreamInfo& theirs = base->streams()[match];
  if (theirs.dtype != stream.dtype || theirs.elements != stream.elements) return std::nullopt;
  return BaseStream{base, match};
}

// The stream of a base that holds a tensor of this name, dtype and part of a sharded tensor.
std::optional<std::size_t> stream_with(const Base& base, const TensorInfo& tensor) {
  const std::optional<std::size_t> named = base.find(tensor.name);
  if (!named) return std::nullopt;
  const TensorInfo& info = base.tensors()[*named];
  if (info.dtype_name != tensor.dtype_name || info.shard != tensor.shard) return std::nullopt;
  // A part is defined by its offset and its shape; a whole tensor may have been reshaped.
  if (tensor.shard && info.shape != tensor.shape) return std::nullopt;
  return base.stream_of(info.alias_of.value_or(*named));
}

std::optional<BaseStream> match_tensor(const std::shared_ptr<const Base>& base, const TensorInfo& tensor,
                                       const StreamInfo& stream) {
  const std::optional<std::size_t> match = stream_with(*base, tensor);
  if (!match) return std::nullopt;
  return if_alike(base, *match, stream);
}

constexpr std::size_t kAmbiguous = std::numeric_limits<std::size_t>::max();

// "a.b.c" -> "b.c"; empty after the last part.
std::string_view without_first_part(std::string_view name) {
  const std::size_t separator = name.find_first_of("./");
  return separator == std::string_view::npos ? std::string_view() : name.substr(separator + 1);
}

bool holds(const Base& base, const TensorInfo& tensor) {
  const std::optional<std::size_t> match = stream_with(base, tensor);
  return match && base.streams()[*match].elements == tensor.element_count();
}

std::optional<BaseStream> match_pool(const std::shared_ptr<const Base>& base, const StreamInfo& stream) {
  const std::span<const StreamInfo> theirs = base->streams();
  if (theirs.empty() || theirs.back().tensor) return std::nullopt;
  return if_alike(base, theirs.size() - 1, stream);
}

}  // namespace

Result<void> RenamedTensors::index(const Base& base, std::span<const TensorInfo> tensors) {
  is_indexed_ = true;
  std::unordered_set<std::string_view> kept;
  for (const TensorInfo& tensor : tensors) kept.insert(tensor.name);
  const std::span<const TensorInfo> theirs = base.tensors();
  for (std::size_t i = 0; i < theirs.size(); ++i) {
    const std::optional<std::size_t> stream = theirs[i].alias_of ? std::nullopt : base.stream_of(i);
    if (!stream) continue;
    BITSNAP_ASSIGN(const ChunkHolder first, base.holder(*stream, 0));
    if (first.decoded_hash) by_hash_.try_emplace(*first.decoded_hash, i);
    if (kept.contains(theirs[i].name)) continue;
    for (std::string_view ending = theirs[i].name; !ending.empty(); ending = without_first_part(ending)) {
      const auto [position, is_new] = by_ending_.try_emplace(std::string(ending), i);
      if (!is_new) position->second = kAmbiguous;
    }
  }
  return {};
}

Result<std::optional<BaseStream>> RenamedTensors::find(const std::shared_ptr<const Base>& base,
                                                       std::span<const TensorInfo> tensors, const TensorInfo& tensor,
                                                       const StreamInfo& stream, std::uint64_t first_hash) {
  if (!is_indexed_) BITSNAP_TRY(index(*base, tensors));
  const auto match = [&](std::size_t number) -> std::optional<BaseStream> {
    const TensorInfo& theirs = base->tensors()[number];
    if (theirs.dtype_name != tensor.dtype_name || theirs.shape != tensor.shape) return std::nullopt;
    if (theirs.shard.has_value() != tensor.shard.has_value()) return std::nullopt;
    return if_alike(base, *base->stream_of(number), stream);
  };
  if (const auto equal = by_hash_.find(first_hash); equal != by_hash_.end()) {
    const StreamInfo& theirs = base->streams()[*base->stream_of(equal->second)];
    if (theirs.dtype == stream.dtype && theirs.elements == stream.elements) {
      return std::optional(BaseStream{base, *base->stream_of(equal->second)});
    }
  }
  // The whole name, as the end of a longer one; or the longest of its own ends that was a whole name.
  if (const auto longer = by_ending_.find(tensor.name); longer != by_ending_.end() && longer->second != kAmbiguous) {
    return match(longer->second);
  }
  for (std::string_view ending = without_first_part(tensor.name); !ending.empty();
       ending = without_first_part(ending)) {
    const auto shorter = by_ending_.find(std::string(ending));
    if (shorter == by_ending_.end() || shorter->second == kAmbiguous) continue;
    if (base->tensors()[shorter->second].name == ending) return match(shorter->second);
  }
  return std::optional<BaseStream>();
}

Result<std::optional<BaseStream>> SingleBase::find(const TensorInfo& tensor, const StreamInfo& stream) {
  return match_tensor(base_, tensor, stream);
}

Result<std::optional<BaseStream>> SingleBase::find_pool(const StreamInfo& stream) { return match_pool(base_, stream); }

Result<std::shared_ptr<const Base>> ShardedBases::own_base() {
  if (own_.shard >= base_shards_) return nullptr;
  if (!own_base_) {
    BITSNAP_ASSIGN(own_base_, open_(own_.shard, Opening::use));
  }
  return *own_base_;
}

void ShardedBases::compare_with_own(const Base* own) {
  missing_.emplace();
  std::unordered_map<std::string_view, const TensorInfo*> by_name;
  for (const TensorInfo& tensor : tensors_) {
    by_name.emplace(tensor.name, &tensor);
    if (!tensor.alias_of && (own == nullptr || !holds(*own, tensor))) missing_->push_back(&tensor);
  }
  bool has_moved = own == nullptr || own_.shards != base_shards_;
  for (std::size_t i = 0; own != nullptr && !has_moved && i < own->tensors().size(); ++i) {
    const TensorInfo& theirs = own->tensors()[i];
    const auto ours = by_name.find(theirs.name);
    has_moved = ours == by_name.end() || ours->second->shard != theirs.shard;
  }
  looks_left_ = has_moved ? kLooksInVainMoved : kLooksInVain;
}

std::optional<std::uint32_t> ShardedBases::next_other() {
  // With another number of shards, the search starts where the tensors would have been.
  const std::uint64_t centre = std::uint64_t{own_.shard} * base_shards_ / std::max(own_.shards, 1U);
  while (others_tried_ < 2 * (std::uint64_t{base_shards_} + centre)) {
    const std::uint64_t distance = (others_tried_ + 1) / 2;
    const bool is_above = others_tried_++ % 2 == 1;
    if (!is_above && distance > centre) continue;
    const std::uint64_t number = is_above ? centre + distance : centre - distance;
    if (number < base_shards_ && number != own_.shard) return static_cast<std::uint32_t>(number);
  }
  return std::nullopt;
}

Result<std::optional<BaseStream>> ShardedBases::find(const TensorInfo& tensor, const StreamInfo& stream) {
  BITSNAP_ASSIGN(const std::shared_ptr<const Base> own, own_base());
  if (own != nullptr) {
    if (auto found = match_tensor(own, tensor, stream)) return found;
  }
  for (const std::shared_ptr<const Base>& other : others_) {
    if (auto found = match_tensor(other, tensor, stream)) return found;
  }
  if (!missing_) compare_with_own(own.get());
  while (looks_left_ > 0) {
    const std::optional<std::uint32_t> number = next_other();
    if (!number) return std::nullopt;
    BITSNAP_ASSIGN(std::shared_ptr<const Base> other, open_(*number, Opening::look));
    const auto is_there = [&](const TensorInfo* missing) { return holds(*other, *missing); };
    if (other == nullptr || std::ranges::none_of(*missing_, is_there)) {
      --looks_left_;
      continue;
    }
    BITSNAP_ASSIGN(other, open_(*number, Opening::use));
    if (other == nullptr) continue;
    std::erase_if(*missing_, is_there);
    others_.push_back(other);
    if (auto found = match_tensor(other, tensor, stream)) return found;
  }
  return std::nullopt;
}

Result<std::optional<BaseStream>> ShardedBases::find_renamed(const TensorInfo& tensor, const StreamInfo& stream,
                                                             std::uint64_t first_hash) {
  BITSNAP_ASSIGN(const std::shared_ptr<const Base> own, own_base());
  if (own == nullptr) return std::optional<BaseStream>();
  return renamed_.find(own, tensors_, tensor, stream, first_hash);
}

Result<std::optional<BaseStream>> ShardedBases::find_pool(const StreamInfo& stream) {
  BITSNAP_ASSIGN(const std::shared_ptr<const Base> own, own_base());
  if (own == nullptr) return std::nullopt;
  return match_pool(own, stream);
}

}  // namespace bitsnap::save
