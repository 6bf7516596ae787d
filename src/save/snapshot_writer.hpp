// The one writing path: a state becomes the bytes of a snapshot file.
//
// Chunks are coded in parallel and written in order. Memory is bounded by the slots of the pipeline, never by the
// state; it does not depend on the number of tensors but for the index.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <bitsnap/error.hpp>
#include <bitsnap/snapshot.hpp>
#include <bitsnap/writer.hpp>

#include "exec/executor.hpp"
#include "os/file_system.hpp"
#include "save/base_finder.hpp"
#include "save/state_tap.hpp"

namespace bitsnap::save {

// A snapshot that some chunk refers to.
struct Reference {
  SnapshotId id;
  std::string name;        // Base::name() of the one that was met first: several may hold the same content, coded in
                           // different ways. Empty where it was not met, as in a chunk that is copied
  bool standalone = true;  // every chunk that is referred to there needs no other snapshot: its depth is 0
};

// What was written, and what it depends on.
struct WriteSummary {
  SaveSummary summary;
  std::uint32_t depth = 0;            // of the deepest chunk
  std::vector<Reference> references;  // in the order of the table of bases
};

// Writes into a file that the caller created and will make durable. `options.base`, `options.overwrite` and
// `options.threads` are not looked at. `bases` may be nullptr: a keyframe; `tap` too. On an error the file's contents
// are unspecified.
[[nodiscard]] Result<WriteSummary> write_snapshot(const State& state, const SaveOptions& options, BaseFinder* bases,
                                                  StateTap* tap, os::WritableFile& file, exec::Executor& executor);

}  // namespace bitsnap::save
