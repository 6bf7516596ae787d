// safetensors files in and out, byte for byte.
#pragma once

#include <cstdint>
#include <string>

#include <bitsnap/error.hpp>
#include <bitsnap/snapshot.hpp>
#include <bitsnap/writer.hpp>

namespace bitsnap {

// An open safetensors file as a state whose tensors are read from the file when they are asked for. The state stays
// valid as long as it exists; the file must not change meanwhile (a change is noticed as a truncated read or goes into
// the snapshot as read, never beyond bounds). Header rules are those of the safetensors format: the data has no holes
// and no overlaps.
[[nodiscard]] Result<State> open_safetensors(const std::string& path, const DecodeLimits& limits = {});

// Whether the file looks like a snapshot or like safetensors; not_found or io if it cannot be read.
enum class FileKind : std::uint8_t { snapshot, safetensors, other };
[[nodiscard]] Result<FileKind> detect_file_kind(const std::string& path);

struct ExportSummary {
  std::uint64_t bytes = 0;
};

// Writes the snapshot as a safetensors file, atomically. One that was made from a safetensors file gives that very
// file, byte for byte; any other gets a header of its own, with its tree, if it has one, as JSON under "bitsnap.tree"
// in __metadata__.
[[nodiscard]] Result<ExportSummary> export_safetensors(const Snapshot& snapshot, const std::string& path,
                                                       bool overwrite, const RunOptions& options = {});

// The bytes of that same file to a sink, piece by piece and in order, one call at a time though not always on the same
// thread: for pipes and sockets.
[[nodiscard]] Result<ExportSummary> stream_safetensors(const Snapshot& snapshot, const Snapshot::Sink& sink,
                                                       const RunOptions& options = {});

}  // namespace bitsnap
