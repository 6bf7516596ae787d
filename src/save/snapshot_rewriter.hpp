// Rewrites a snapshot without some of its bases, so that these can be removed, or against the snapshot of a later
// state. Chunks that need not change are copied as they are stored; the others are decoded and encoded again, in the
// pipeline of a save and in bounded memory.
#pragma once

#include <span>

#include <bitsnap/error.hpp>
#include <bitsnap/snapshot.hpp>
#include <bitsnap/writer.hpp>

#include "exec/executor.hpp"
#include "os/file_system.hpp"
#include "save/base_finder.hpp"
#include "save/snapshot_writer.hpp"

namespace bitsnap::save {

struct RewriteRules {
  std::span<const SnapshotId> dropped = {};  // nothing refers to these afterwards
  // If given, all chunks with a base and all that are standalone are encoded again, against `bases`, which hold a later
  // state, and this is the most that such a chunk may be deep. Chunks that follow from others of the file are copied,
  // and those of clusters.
  std::optional<std::uint32_t> later_depth = {};
};

// Writes the content of `source` without a reference to any snapshot whose id is in `dropped`. The content, and so the
// id, stays the same. Ids that are not among source.bases() have no effect.
//
// A copied chunk keeps payload, codec, parameters, hashes and depth. Only if it needs other chunks of this file alone,
// its depth becomes what theirs now is. For a base that only copied chunks refer to, the summary relies on the stored
// depth.
//
// Without `later_depth`, an encoded chunk is standalone, or refers to an equal chunk that `bases` (may be nullptr)
// finds, as with max_depth 0. It never refers to a dropped id or to the id of `source`: the new file probably replaces
// `source`, and another file with the same id could not be told apart. Of `options`, only policy, objective, store
// speed, codec and progress are used.
//
// Bases without references leave the table. After an error, such as damage in the source or in one of its bases, the
// contents of the file are undefined.
[[nodiscard]] Result<WriteSummary> rewrite_snapshot(const Snapshot& source, const RewriteRules& rules,
                                                    BaseFinder* bases, const SaveOptions& options,
                                                    os::WritableFile& file, exec::Executor& executor);

}  // namespace bitsnap::save
