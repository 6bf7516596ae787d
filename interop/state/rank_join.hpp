// The states of the ranks of a checkpoint as one state, with the global tensors that the tensor index lists. Pure
// functions; the results are thread-safe if the tensors of the ranks are.
#pragma once

#include <vector>

#include <bitsnap/error.hpp>
#include <bitsnap/global_tensor.hpp>

#include "interop/state/state_parts.hpp"

namespace bitsnap::interop {

// `tensors`: of the checkpoint, whose shard N is `ranks[N]`. The trees of the ranks are joined key by key: what all
// ranks that have a key hold alike is there once, and what they hold differently lies in the dict "rank-N/KEY" of each
// rank, where KEY is the key at the top. There is no tree if the tree of a rank is no dict, and differs. corrupt if the
// tensors are not those of the ranks; otherwise fails as assemble() does.
[[nodiscard]] Result<StateParts> join_ranks(std::vector<StateParts> ranks, const std::vector<GlobalTensor>& tensors);

}  // namespace bitsnap::interop
