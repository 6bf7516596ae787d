// Writes one file: finds the inputs of all streams, encodes chunks in parallel, writes them in order, and fills in the
// index. Saving a state and rewriting a snapshot both use it.
//
// Memory is bounded by the slots of the pipeline, not by the state.
#pragma once

#include <bitsnap/error.hpp>

#include "container/index.hpp"
#include "exec/executor.hpp"
#include "os/file_system.hpp"
#include "save/snapshot_writer.hpp"
#include "save/stream_jobs.hpp"

namespace bitsnap::save {

// `index` has content, streams and the safetensors header. If chunks are copied from an old file, it also has their
// entries, without the offset of the payload; the bases, inputs and parameters that these entries name; and the reasons
// of streams that are copied completely. run_pipeline() fills in the rest.
[[nodiscard]] Result<WriteSummary> run_pipeline(container::Index& index, const PipelineParts& parts,
                                                os::WritableFile& file, exec::Executor& executor);

}  // namespace bitsnap::save
