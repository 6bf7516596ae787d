// The order in which the chunks of a new file are encoded, and which of them share a planner's choice. Pure functions
// of the jobs, so that the bytes of a file do not depend on the number of threads.
#pragma once

#include <cstddef>
#include <deque>
#include <span>
#include <vector>

#include "container/index.hpp"
#include "plan/shared_choice.hpp"
#include "save/stream_jobs.hpp"

namespace bitsnap::save {

// The numbers of all chunks, by the ranks of their streams. If nothing is copied, each chunk comes right after the last
// chunk of its peers that it needs, whose bytes are then still cached.
[[nodiscard]] std::vector<std::size_t> order_chunks(const container::Index& index, std::span<const StreamJob> jobs,
                                                    const StoredChunks* stored);

// Groups of similar chunks, and the seat of each chunk in its group.
struct SimilarChunks {
  struct Place {
    plan::SharedChoice* group = nullptr;  // nullptr: the chunk is copied, or belongs to the pool
    std::size_t member = 0;
  };
  std::deque<plan::SharedChoice> groups;
  std::vector<Place> places;  // by chunk number
};

// Similar are chunks of tensors of the same role, dtype, row length and candidates whose names differ in numbers only,
// like those of layers. Members of a group are in the given order.
[[nodiscard]] SimilarChunks group_similar_chunks(const container::Index& index, std::span<const StreamJob> jobs,
                                                 const StoredChunks* stored, std::span<const std::size_t> order);

}  // namespace bitsnap::save
