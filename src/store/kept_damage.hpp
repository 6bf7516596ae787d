// Which damaged checkpoints a repair keeps: each of which a tensor can be read, and the damaged steps that these refer
// to, because chunks of them may be sound.
#pragma once

#include <cstdint>
#include <map>

#include <bitsnap/error.hpp>

#include "store/checkpoint_reader.hpp"
#include "store/commit_record.hpp"

namespace bitsnap::store {

struct DamagedStep {
  const CommitRecord* record = nullptr;
  bool is_retired = false;
};

// How much of a checkpoint can be read. Of a retired one, nobody counts it.
struct Readable {
  std::uint64_t tensors = 0;
  std::uint64_t damaged = 0;  // of them, at least 1; a shard that cannot be opened counts as one
};

// By step, those of `damaged` that stay.
[[nodiscard]] Result<std::map<std::uint64_t, Readable>> choose_kept(CheckpointReader& reader,
                                                                    const std::map<std::uint64_t, DamagedStep>& damaged,
                                                                    unsigned threads);

}  // namespace bitsnap::store
