// A snapshot is written again so that it needs less: without some of its bases, which may then go.
//
// Chunks that refer to none of those are copied as they are stored, all others decoded and stored anew, through the
// same pipeline as a save and in the same bounded memory.
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

// Writes the content of `source` (the id, so, is the same) without a reference to any snapshot whose id is in
// `dropped`; ids there that are none of source.bases() do no harm.
//
// A chunk that refers to none of them keeps payload, codec, parameters, hashes and stored depth; but for one that
// needs only other chunks of the file, whose depth is what those now have. Of a snapshot that only such chunks refer
// to, the summary takes the stored depth for the true one. All others are stored by policy, objective and codec of
// `options`, of which only those, the store's speed and progress are looked at: standalone or, where the policy has
// that, as a reference to an equal chunk that `bases` (may be nullptr) finds, under the rules of a max_depth of 0.
// Never as a reference to a snapshot that has the id of a dropped one or of `source` itself, which the new file is
// likely to replace: though it were another file of that content, nobody could tell them apart.
//
// Bases that no chunk refers to any longer leave the table. On an error, as of damage in the source or in what it
// depends on, the file's contents are unspecified.
[[nodiscard]] Result<WriteSummary> rewrite_snapshot(const Snapshot& source, std::span<const SnapshotId> dropped,
                                                    BaseFinder* bases, const SaveOptions& options,
                                                    os::WritableFile& file, exec::Executor& executor);

}  // namespace bitsnap::save
