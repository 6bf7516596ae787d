// Reads and writes safetensors files, byte for byte.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include <bitsnap/error.hpp>
#include <bitsnap/snapshot.hpp>
#include <bitsnap/writer.hpp>

namespace bitsnap {

// Opens a safetensors file as a state. The tensors are read from the file when they are needed; the state keeps the
// file open. Do not change the file meanwhile: a read then fails with truncated, or returns the new bytes. corrupt or
// truncated if the header violates the safetensors format, such as tensors that overlap or leave holes.
[[nodiscard]] Result<State> open_safetensors(const std::string& path, const DecodeLimits& limits = {});

// Tells snapshots and safetensors files by their first bytes. not_found or io if the file cannot be read.
enum class FileKind : std::uint8_t { snapshot, safetensors, other };
[[nodiscard]] Result<FileKind> detect_file_kind(const std::string& path);

struct ExportSummary {
  std::uint64_t bytes = 0;
};

// Writes the snapshot as a safetensors file, by a temporary file and one rename. A snapshot of a safetensors file gives
// the same file, byte for byte. Any other snapshot gets a new header; its tree, if it has one, is stored as JSON under
// "bitsnap.tree" in __metadata__. invalid_argument if `path` exists and `overwrite` is false. `left_out`: tensors that
// the file does not hold, by number and ascending; such a file has a new header without a tree.
[[nodiscard]] Result<ExportSummary> export_safetensors(const Snapshot& snapshot, const std::string& path,
                                                       bool overwrite, const RunOptions& options = {},
                                                       std::span<const std::size_t> left_out = {});

// Passes the bytes of the same file to `sink`, piece by piece and in order: for pipes and sockets. Calls of `sink` do
// not overlap, but may come from different threads.
[[nodiscard]] Result<ExportSummary> stream_safetensors(const Snapshot& snapshot, const Snapshot::Sink& sink,
                                                       const RunOptions& options = {},
                                                       std::span<const std::size_t> left_out = {});

// The same with a new header for one tensor only, by its index in Snapshot::tensors().
[[nodiscard]] Result<ExportSummary> export_tensor(const Snapshot& snapshot, std::size_t tensor, const std::string& path,
                                                  bool overwrite);
[[nodiscard]] Result<ExportSummary> stream_tensor(const Snapshot& snapshot, std::size_t tensor,
                                                  const Snapshot::Sink& sink);

}  // namespace bitsnap
