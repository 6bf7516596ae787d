// Matches tensors and pools, and orders the search through shards.
#include "save/base_finder.hpp"

#include <algorithm>
#include <array>
#include <limits>

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

// Names are compared by this many parts at most, so that a long name costs no more than others.
constexpr std::size_t kMostParts = 8;

// The name without the parts that wrappers of modules add.
std::string without_wrappers(std::string_view name) {
  constexpr std::array<std::string_view, 4> kWrappers = {"module", "_orig_mod", "_fsdp_wrapped_module",
                                                         "_checkpoint_wrapped_module"};
  std::string bare;
  for (std::string_view left = name; !left.empty();) {
    const std::string_view after = without_first_part(left);
    const std::string_view part = left.substr(0, left.size() - after.size());
    const std::string_view word = after.empty() ? part : part.substr(0, part.size() - 1);
    if (std::ranges::find(kWrappers, word) == kWrappers.end()) bare += part;
    left = after;
  }
  return bare;
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

void RenamedTensors::index(const Base& base, std::span<const TensorInfo> tensors) {
  is_indexed_ = true;
  for (const TensorInfo& tensor : tensors) kept_.insert(tensor.name);
  const auto enter = [](auto& map, auto key, std::size_t tensor) {
    const auto [position, is_new] = map.try_emplace(std::move(key), tensor);
    if (!is_new) position->second = kAmbiguous;
  };
  const std::span<const TensorInfo> theirs = base.tensors();
  for (std::size_t i = 0; i < theirs.size(); ++i) {
    const std::optional<std::size_t> stream = theirs[i].alias_of ? std::nullopt : base.stream_of(i);
    if (!stream) continue;
    // What it refers to may be gone: then the tensor cannot serve as a base, and its name says so when it is read.
    if (const auto first = base.holder(*stream, 0); first && first->decoded_hash) {
      enter(by_hash_, *first->decoded_hash, i);
    }
    if (kept_.contains(theirs[i].name)) continue;
    enter(by_bare_name_, without_wrappers(theirs[i].name), i);
    std::string_view ending = without_first_part(theirs[i].name);
    for (std::size_t parts = 0; parts < kMostParts && !ending.empty(); ++parts) {
      enter(by_ending_, ending, i);
      ending = without_first_part(ending);
    }
  }
}

// In the order of preference.
std::vector<std::size_t> RenamedTensors::named_like(const Base& base, std::string_view name) const {
  std::vector<std::size_t> found;
  const auto take = [&](const auto& map, const auto& key) {
    const auto position = map.find(key);
    if (position != map.end() && position->second != kAmbiguous) found.push_back(position->second);
  };
  take(by_bare_name_, without_wrappers(name));
  take(by_ending_, name);
  std::string_view ending = without_first_part(name);
  for (std::size_t parts = 0; parts < kMostParts && !ending.empty(); ++parts) {
    const auto whole = kept_.contains(ending) ? std::nullopt : base.find(ending);
    if (whole) found.push_back(*whole);
    ending = without_first_part(ending);
  }
  return found;
}

std::optional<BaseStream> RenamedTensors::find(const std::shared_ptr<const Base>& base,
                                               std::span<const TensorInfo> tensors, const TensorInfo& tensor,
                                               const StreamInfo& stream, std::uint64_t first_hash) {
  if (!is_indexed_) index(*base, tensors);
  std::vector<std::size_t> candidates = named_like(*base, tensor.name);
  if (const auto equal = by_hash_.find(first_hash); equal != by_hash_.end() && equal->second != kAmbiguous) {
    candidates.push_back(equal->second);
  }
  for (const std::size_t number : candidates) {
    const TensorInfo& theirs = base->tensors()[number];
    const std::optional<std::size_t> match = theirs.alias_of ? std::nullopt : base->stream_of(number);
    if (!match || theirs.dtype_name != tensor.dtype_name || theirs.shape != tensor.shape) continue;
    if (theirs.shard.has_value() != tensor.shard.has_value()) continue;
    if (tensor.shard && theirs.shard->offset != tensor.shard->offset) continue;
    if (auto found = if_alike(base, *match, stream)) return found;
  }
  return std::nullopt;
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
