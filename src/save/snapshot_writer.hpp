// Writes a state into a snapshot file. save_snapshot(), the store and the engine all call write_snapshot().
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
  std::string name;        // Base::name(). Several files may have this id; this is the one that was coded against.
                           // Empty if only copied chunks refer to it
  bool standalone = true;  // every chunk that is referred to in it has depth 0
};

// What was written, and what it depends on.
struct WriteSummary {
  SaveSummary summary;
  std::uint32_t depth = 0;            // of the deepest chunk
  std::vector<Reference> references;  // in the order of the table of bases
};

// Writes into a file that the caller created and will sync. Ignores the base, overwrite and threads of the options.
// Without `bases` (nullptr) the file is a keyframe; `tap` may be nullptr. After an error, the contents of the file are
// undefined.
[[nodiscard]] Result<WriteSummary> write_snapshot(const State& state, const SaveOptions& options, BaseFinder* bases,
                                                  StateTap* tap, os::WritableFile& file, exec::Executor& executor);

}  // namespace bitsnap::save
