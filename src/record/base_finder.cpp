// Matching the streams of a state with those of earlier snapshots.
#include "record/base_finder.hpp"

#include <span>
#include <utility>

#include "base/try.hpp"

namespace bitsnap::record {
namespace {

std::optional<BaseStream> if_alike(const std::shared_ptr<const Base>& base, std::size_t match,
                                   const StreamInfo& stream) {
  const StreamInfo& theirs = base->streams()[match];
  if (theirs.dtype != stream.dtype || theirs.elements != stream.elements) return std::nullopt;
  return BaseStream{base, match};
}

std::optional<BaseStream> match_tensor(const std::shared_ptr<const Base>& base, const TensorInfo& tensor,
                                       const StreamInfo& stream) {
  const std::optional<std::size_t> named = base->find(tensor.name);
  if (!named) return std::nullopt;
  const TensorInfo& info = base->tensors()[*named];
  if (info.dtype_name != tensor.dtype_name || info.shard != tensor.shard) return std::nullopt;
  // A box is its offset and its extent; a whole tensor may have been reshaped.
  if (tensor.shard && info.shape != tensor.shape) return std::nullopt;
  const std::optional<std::size_t> match = base->stream_of(info.alias_of.value_or(*named));
  if (!match) return std::nullopt;
  return if_alike(base, *match, stream);
}

std::optional<BaseStream> match_pool(const std::shared_ptr<const Base>& base, const StreamInfo& stream) {
  const std::span<const StreamInfo> theirs = base->streams();
  if (theirs.empty() || theirs.back().tensor) return std::nullopt;
  return if_alike(base, theirs.size() - 1, stream);
}

}  // namespace

Result<std::optional<BaseStream>> SingleBase::find(const TensorInfo& tensor, const StreamInfo& stream) {
  return match_tensor(base_, tensor, stream);
}

Result<std::optional<BaseStream>> SingleBase::find_pool(const StreamInfo& stream) { return match_pool(base_, stream); }

ShardedBases::ShardedBases(std::uint32_t shards, std::uint32_t own_shard, Open open)
    : own_shard_(own_shard), open_(std::move(open)), shards_(shards) {}

Result<std::shared_ptr<const Base>> ShardedBases::shard(std::uint32_t number) {
  if (!shards_[number]) {
    BITSNAP_ASSIGN(shards_[number], open_(number));
  }
  return *shards_[number];
}

Result<std::optional<BaseStream>> ShardedBases::find(const TensorInfo& tensor, const StreamInfo& stream) {
  const auto find_in = [&](std::uint32_t number) -> Result<std::optional<BaseStream>> {
    BITSNAP_ASSIGN(const std::shared_ptr<const Base> base, shard(number));
    if (base == nullptr) return std::nullopt;
    return match_tensor(base, tensor, stream);
  };
  if (own_shard_ < shards_.size()) {
    BITSNAP_ASSIGN(std::optional<BaseStream> found, find_in(own_shard_));
    if (found) return found;
  }
  for (std::uint32_t number = 0; number < shards_.size(); ++number) {
    if (number == own_shard_) continue;
    BITSNAP_ASSIGN(std::optional<BaseStream> found, find_in(number));
    if (found) return found;
  }
  return std::nullopt;
}

Result<std::optional<BaseStream>> ShardedBases::find_pool(const StreamInfo& stream) {
  if (own_shard_ >= shards_.size()) return std::nullopt;
  BITSNAP_ASSIGN(const std::shared_ptr<const Base> base, shard(own_shard_));
  if (base == nullptr) return std::nullopt;
  return match_pool(base, stream);
}

}  // namespace bitsnap::record
