// The one writing path: a state becomes the bytes of a snapshot file.
//
// Chunks are coded in parallel and written in order. Memory is bounded by the slots of the pipeline, never by the
// state; it does not depend on the number of tensors but for the index.
#pragma once

#include <bitsnap/error.hpp>
#include <bitsnap/writer.hpp>

#include "exec/executor.hpp"
#include "os/file_system.hpp"

namespace bitsnap::record {

// Writes into a file that the caller created and will make durable. `options.overwrite` and `options.threads` are not
// looked at. On an error the file's contents are unspecified.
[[nodiscard]] Result<SaveSummary> record_snapshot(const State& state, const SaveOptions& options,
                                                  os::WritableFile& file, exec::Executor& executor);

}  // namespace bitsnap::record
