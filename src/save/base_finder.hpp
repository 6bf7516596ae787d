// Finds, for a stream that is being saved, the stream of an earlier snapshot that holds the same tensor: in one base
// (SingleBase), or among the shards of a checkpoint of several ranks (ShardedBases).
//
// One thread uses a finder, before the first chunk is coded. Later, each chunk decides for itself whether it is coded
// against the base.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include <bitsnap/error.hpp>
#include <bitsnap/snapshot.hpp>

namespace bitsnap::save {

// A stream of an earlier snapshot with the same dtype and number of elements as the stream that is saved.
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

  // Called once before find(), with all tensors that are being saved. They outlive the search.
  virtual void begin(std::span<const TensorInfo> tensors) { static_cast<void>(tensors); }

  // The base of a tensor, whose bytes are in `stream`; nullopt if there is none.
  [[nodiscard]] virtual Result<std::optional<BaseStream>> find(const TensorInfo& tensor, const StreamInfo& stream) = 0;
  // Whether the file names its bases. Ranks with equal states write equal files only if they do not.
  [[nodiscard]] virtual bool names_bases() const noexcept { return true; }
  // The base of a tensor for which find() has found none, because it has another name than before. `first_hash`: of the
  // first chunk's bytes.
  [[nodiscard]] virtual Result<std::optional<BaseStream>> find_renamed(const TensorInfo& tensor,
                                                                       const StreamInfo& stream,
                                                                       std::uint64_t first_hash) {
    static_cast<void>(tensor), static_cast<void>(stream), static_cast<void>(first_hash);
    return std::optional<BaseStream>();
  }
  // The base of the pool.
  [[nodiscard]] virtual Result<std::optional<BaseStream>> find_pool(const StreamInfo& stream) = 0;

  // Called after the last chunk is encoded. The finder lets go of the bases that it can open again.
  virtual void end() noexcept {}
};

// The tensors of one base that had other names: a name matches one that differs in the parts that wrappers add, such as
// "module" and "_orig_mod", or that has a prefix more or less. A tensor whose name matches none matches one with the
// same bytes in its first chunk, if only one has them. Dtype, shape and place in a sharded tensor are the same. A wrong
// match costs space and time only, because coding compares every element.
class RenamedTensors {
 public:
  // `tensors`: those that are saved. What the base has under one of their names is no other tensor's.
  [[nodiscard]] std::optional<BaseStream> find(const std::shared_ptr<const Base>& base,
                                               std::span<const TensorInfo> tensors, const TensorInfo& tensor,
                                               const StreamInfo& stream, std::uint64_t first_hash);
  void clear() noexcept { *this = {}; }

 private:
  void index(const Base& base, std::span<const TensorInfo> tensors);
  [[nodiscard]] std::vector<std::size_t> named_like(const Base& base, std::string_view name) const;

  // By tensor of the base; kAmbiguous: several. The views are of names of the base.
  bool is_indexed_ = false;
  std::unordered_set<std::string_view> kept_;  // names
  std::unordered_map<std::uint64_t, std::size_t> by_hash_;
  std::unordered_map<std::string, std::size_t> by_bare_name_;  // without the parts of wrappers
  std::unordered_map<std::string_view, std::size_t> by_ending_;
};

// Searches one base. A whole tensor matches a whole tensor of the same name, dtype and number of elements. A part of a
// sharded tensor matches the same part of the same tensor. A pool matches a pool of the same size.
class SingleBase final : public BaseFinder {
 public:
  // Precondition: not nullptr.
  explicit SingleBase(std::shared_ptr<const Base> base) noexcept : base_(std::move(base)) {}

  void begin(std::span<const TensorInfo> tensors) override { tensors_ = tensors; }
  Result<std::optional<BaseStream>> find(const TensorInfo& tensor, const StreamInfo& stream) override;
  Result<std::optional<BaseStream>> find_renamed(const TensorInfo& tensor, const StreamInfo& stream,
                                                 std::uint64_t first_hash) override {
    return renamed_.find(base_, tensors_, tensor, stream, first_hash);
  }
  Result<std::optional<BaseStream>> find_pool(const StreamInfo& stream) override;
  void end() noexcept override { renamed_.clear(); }

 private:
  std::shared_ptr<const Base> base_;
  std::span<const TensorInfo> tensors_;
  RenamedTensors renamed_;
};

// Searches the shards of one checkpoint, with the rules of SingleBase: first the shard of the same rank (the own
// shard), then the others, nearest number first, because a tensor may have moved to another rank. The pool is searched
// in the own shard only, because the pools of other shards hold other tensors.
//
// Without a limit, each of a thousand ranks would open a thousand files for a tensor that is new. A shard is opened in
// vain if it holds none of the tensors that the own shard lacks. After kLooksInVain such shards the search ends, or
// after kLooksInVainMoved if tensors evidently moved between ranks. A tensor that is not found is coded without a base.
class ShardedBases final : public BaseFinder {
 public:
  static constexpr std::uint32_t kLooksInVain = 8;
  static constexpr std::uint32_t kLooksInVainMoved = 256;

  enum class Opening : std::uint8_t {
    look,  // only the list of tensors will be read
    use,
  };
  // Opens a shard, or returns nullptr if the shard cannot serve as a base. An error ends the search. The own shard is
  // opened for use only; another shard is opened at most once to look, and then perhaps once for use.
  using Open = std::function<Result<std::shared_ptr<const Base>>(std::uint32_t shard, Opening opening)>;

  // The shard that is being saved, and the number of shards of its checkpoint.
  struct Place {
    std::uint32_t shard = 0;
    std::uint32_t shards = 1;
  };

  // If the base checkpoint has fewer shards than the number of the own shard, there is no own shard.
  ShardedBases(std::uint32_t base_shards, Place own, Open open)
      : base_shards_(base_shards), own_(own), open_(std::move(open)) {}

  void begin(std::span<const TensorInfo> tensors) override { tensors_ = tensors; }
  bool names_bases() const noexcept override { return own_.shards == 1; }
  Result<std::optional<BaseStream>> find(const TensorInfo& tensor, const StreamInfo& stream) override;
  // In the own shard only.
  Result<std::optional<BaseStream>> find_renamed(const TensorInfo& tensor, const StreamInfo& stream,
                                                 std::uint64_t first_hash) override;
  Result<std::optional<BaseStream>> find_pool(const StreamInfo& stream) override;
  void end() noexcept override {
    own_base_.reset();
    others_.clear();
    renamed_.clear();
  }

 private:
  // nullptr if there is none.
  Result<std::shared_ptr<const Base>> own_base();
  // Sets missing_ and looks_left_.
  void compare_with_own(const Base* own);
  // The next shard to look into, by distance from the own one; nullopt after the last one.
  std::optional<std::uint32_t> next_other();

  std::uint32_t base_shards_;
  Place own_;
  Open open_;
  std::span<const TensorInfo> tensors_;
  std::optional<std::shared_ptr<const Base>> own_base_;    // nullopt: not opened yet
  std::vector<std::shared_ptr<const Base>> others_;        // shards that held something missing; they stay open
  std::optional<std::vector<const TensorInfo*>> missing_;  // tensors that no opened shard has; nullopt: not known yet
  std::uint32_t looks_left_ = 0;                           // shards that may still be opened in vain
  std::uint64_t others_tried_ = 0;
  RenamedTensors renamed_;
};

}  // namespace bitsnap::save
