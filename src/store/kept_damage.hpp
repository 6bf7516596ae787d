// Which damaged checkpoints a repair keeps: each of which a tensor can be read, and the damaged steps to which these
// lead by references, also by those of undamaged steps, because chunks of them may be sound.
#pragma once

#include <cstdint>
#include <map>

#include <bitsnap/error.hpp>

#include "store/checkpoint_reader.hpp"
#include "store/commit_record.hpp"

namespace bitsnap::store {

struct SearchedStep {
  const CommitRecord* record = nullptr;
  bool is_retired = false;
  bool is_damaged = false;
};

// How much of a checkpoint can be read. Of a retired one, nobody counts it.
struct Readable {
  std::uint64_t tensors = 0;
  std::uint64_t damaged = 0;  // of them, at least 1; a shard that cannot be opened counts as one
};

// By step, the damaged ones that stay. `steps`: all whose records can be read.
[[nodiscard]] Result<std::map<std::uint64_t, Readable>> choose_kept(CheckpointReader& reader,
                                                                    const std::map<std::uint64_t, SearchedStep>& steps,
                                                                    unsigned threads);

}  // namespace bitsnap::store
