// Which stream of an earlier snapshot stands for a stream that is to be stored: of one base, or of the shards of a
// whole checkpoint.
//
// A finder is asked stream by stream by one thread, before the first chunk is coded. It says where the same elements
// were before; whether their bytes are of any use is decided chunk by chunk.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <bitsnap/error.hpp>
#include <bitsnap/snapshot.hpp>

namespace bitsnap::record {

// The stream of the base that holds the earlier bytes of a stream, element beside element.
struct BaseStream {
  std::shared_ptr<const Base> base;
  std::size_t stream = 0;
};

class BaseFinder {
 public:
  BaseFinder() = default;
  BaseFinder(const BaseFinder&) = delete;
  BaseFinder& operator=(const BaseFinder&) = delete;
  virtual ~BaseFinder() = default;

  // The stream with the earlier bytes of this tensor, which `stream` holds; nullopt where there is none. It has the
  // same dtype and number of elements.
  [[nodiscard]] virtual Result<std::optional<BaseStream>> find(const TensorInfo& tensor, const StreamInfo& stream) = 0;
  // The same for the pool.
  [[nodiscard]] virtual Result<std::optional<BaseStream>> find_pool(const StreamInfo& stream) = 0;
};

// One base. A tensor is the one of the same name and dtype if it is whole in both, or the same box of the same larger
// tensor in both; the pool is the pool of the same size.
class SingleBase final : public BaseFinder {
 public:
  // Precondition: not nullptr.
  explicit SingleBase(std::shared_ptr<const Base> base) noexcept : base_(std::move(base)) {}

  Result<std::optional<BaseStream>> find(const TensorInfo& tensor, const StreamInfo& stream) override;
  Result<std::optional<BaseStream>> find_pool(const StreamInfo& stream) override;

 private:
  std::shared_ptr<const Base> base_;
};

// The shards of one checkpoint, opened as they are needed and kept. A tensor is looked for, as in a SingleBase, in the
// own shard, then in the others in order, so that one that moved to another rank is found; a tensor that is in none of
// them opens them all. The pool is that of the own shard alone: what lies in another's are other tensors.
class ShardedBases final : public BaseFinder {
 public:
  // Asked at most once for each shard. nullptr: this shard holds no bases; an error ends the search with it.
  using Open = std::function<Result<std::shared_ptr<const Base>>(std::uint32_t shard)>;

  // `own_shard` may lie beyond the shards, as where ranks were added: then none is the own one.
  ShardedBases(std::uint32_t shards, std::uint32_t own_shard, Open open);

  Result<std::optional<BaseStream>> find(const TensorInfo& tensor, const StreamInfo& stream) override;
  Result<std::optional<BaseStream>> find_pool(const StreamInfo& stream) override;

 private:
  Result<std::shared_ptr<const Base>> shard(std::uint32_t number);

  std::uint32_t own_shard_;
  Open open_;
  std::vector<std::optional<std::shared_ptr<const Base>>> shards_;  // nullopt: not opened yet
};

}  // namespace bitsnap::record
