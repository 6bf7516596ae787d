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
#include <span>
#include <utility>
#include <vector>

#include <bitsnap/error.hpp>
#include <bitsnap/snapshot.hpp>

namespace bitsnap::save {

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

  // All tensors of the snapshot that is to be stored, before the first is asked for; they outlive the asking.
  virtual void begin(std::span<const TensorInfo> tensors) { static_cast<void>(tensors); }

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

// The shards of one checkpoint. A tensor is looked for, as in a SingleBase, in the own shard, then in the others, so
// that one that moved to another rank is found. The pool is that of the own shard alone: what lies in another's are
// other tensors.
//
// Of a thousand ranks each could open a thousand files for a tensor that is simply new. So the others are looked at
// from the nearest on, each once, and only so many of those that hold nothing that is missing here: kShardsLookedAt, or
// kShardsLookedAtMoved where it shows that tensors moved, that is, where the number of shards is another or the own one
// holds what this rank no longer has. What moved further is not found, and stored without a base. Those that do hold
// something are at most as many as the tensors found in them, and stay open; the others do not.
class ShardedBases final : public BaseFinder {
 public:
  static constexpr std::uint32_t kShardsLookedAt = 8;
  static constexpr std::uint32_t kShardsLookedAtMoved = 256;

  enum class Opening : std::uint8_t {
    look,  // only what tensors there are is asked
    use,
  };
  // nullptr: this shard holds no bases; an error ends the search with it. The own shard is only opened for use; others
  // are looked at before, each at most once.
  using Open = std::function<Result<std::shared_ptr<const Base>>(std::uint32_t shard, Opening opening)>;

  // What is to be stored: one shard of so many.
  struct Place {
    std::uint32_t shard = 0;
    std::uint32_t shards = 1;
  };

  // Where there are fewer base shards than the number of the own one, as where ranks were added, none is the own.
  ShardedBases(std::uint32_t base_shards, Place own, Open open)
      : base_shards_(base_shards), own_(own), open_(std::move(open)) {}

  void begin(std::span<const TensorInfo> tensors) override { tensors_ = tensors; }
  Result<std::optional<BaseStream>> find(const TensorInfo& tensor, const StreamInfo& stream) override;
  Result<std::optional<BaseStream>> find_pool(const StreamInfo& stream) override;

 private:
  // nullptr if there is none.
  Result<std::shared_ptr<const Base>> own_base();
  // What the own shard does not have of the tensors, and whether anything moved.
  void compare_with_own(const Base* own);
  [[nodiscard]] bool has_anything_missing(const Base& base) const;
  // The shards other than the own one, from the nearest on.
  std::optional<std::uint32_t> next_other();

  std::uint32_t base_shards_;
  Place own_;
  Open open_;
  std::span<const TensorInfo> tensors_;
  std::optional<std::shared_ptr<const Base>> own_base_;  // nullopt: not opened yet
  std::vector<std::shared_ptr<const Base>> others_;      // those that hold something, in the order of looking
  std::optional<std::vector<const TensorInfo*>> missing_;
  std::uint32_t may_be_useless_ = 0;  // shards that may still be looked at for nothing
  std::uint64_t looks_ = 0;
};

}  // namespace bitsnap::save
