// TensorReader: tensors across the shards of a checkpoint: lists them, and reads any box of them.
//
// A handle owns it. Any thread may call it. It remembers the tensors that were listed last: a rank lists them to plan,
// and then reads.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <bitsnap/store.hpp>

#include "store/checkpoint_reader.hpp"
#include "store/commit_record.hpp"
#include "store/step_directories.hpp"

namespace bitsnap::store {

class TensorReader {
 public:
  using Tensors = std::shared_ptr<const std::vector<GlobalTensor>>;

  // `directories` and `reader` outlive this object.
  TensorReader(const StepDirectories& directories, CheckpointReader& reader, const DecodeLimits& limits)
      : directories_(directories), layout_(directories.layout()), reader_(reader), limits_(limits) {}

  [[nodiscard]] Result<Tensors> list(std::uint64_t step) const;
  [[nodiscard]] Result<void> read(std::uint64_t step, std::span<const TensorBox> boxes,
                                  const RunOptions& options) const;

 private:
  // From the tensor index, or else from the files.
  [[nodiscard]] Result<std::pair<CommitRecord, Tensors>> record_with_tensors(std::uint64_t step,
                                                                             unsigned threads) const;

  const StepDirectories& directories_;
  const RunLayout& layout_;
  CheckpointReader& reader_;
  const DecodeLimits limits_;
  mutable std::mutex mutex_;
  mutable std::optional<CommitRecord> record_;
  mutable Tensors tensors_;
};

}  // namespace bitsnap::store
