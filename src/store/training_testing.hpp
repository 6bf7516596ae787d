// Training: a small training for tests of the store and the engine, whose states follow from its seed; and files as
// blobs.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <bitsnap/snapshot.hpp>
#include <bitsnap/writer.hpp>

#include "codec/optimizer_step/trained_step_testing.hpp"
#include "save/state_testing.hpp"
#include "store/base_cache.hpp"
#include "store/blob.hpp"

namespace bitsnap::store {

[[nodiscard]] std::shared_ptr<const Blob> to_blob(const save::Bytes& bytes);
// A file system that the test owns.
[[nodiscard]] inline std::shared_ptr<os::FileSystem> unowned(os::FileSystem& files) {
  return {std::shared_ptr<void>(), &files};
}

// Makes the cache's entry for a snapshot and the file that it was opened from.
[[nodiscard]] CachedSnapshot from_file(std::uint64_t step, const Snapshot& snapshot, const save::Bytes& file);

// A parameter with weight, master and moments, an embedding that never changes and has an alias, a tensor of zeros, and
// some small tensors. Owns the bytes; the states that it makes refer to them.
class Training {
 public:
  static constexpr std::size_t kElements = kChunkElements + 1000;

  explicit Training(std::uint64_t seed = 1);
  void step();
  // Overwrites all tensors, as a training does that continues after a save.
  void scribble();

  [[nodiscard]] State state() const;
  // Options with the policy `bounded`.
  [[nodiscard]] SaveOptions bounded() const;
  [[nodiscard]] std::uint64_t steps() const noexcept { return steps_; }

  // The bytes of each tensor as a slot holds them; none for an alias.
  [[nodiscard]] std::vector<save::Bytes> slot() const;
  // Returns an empty string if the snapshot holds exactly this state, otherwise the difference.
  [[nodiscard]] std::string difference(const Snapshot& snapshot) const;

 private:
  void write();

  codec::TrainedState trained_;
  std::uint64_t steps_ = 0;
  save::Bytes weight_, master_, exp_avg_, exp_avg_sq_, frozen_, zeros_, count_, scale_;
};

}  // namespace bitsnap::store
