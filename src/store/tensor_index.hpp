// The tensor index of a checkpoint: the tensors of all its shards in one file, so that a reader opens only the shards
// that it needs. docs/spec/store.md, "tensors.json". It is a cache of what the snapshot files say.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <bitsnap/error.hpp>
#include <bitsnap/global_tensor.hpp>
#include <bitsnap/snapshot.hpp>

#include "os/file_system.hpp"
#include "store/checkpoint_reader.hpp"
#include "store/commit_record.hpp"
#include "store/run_layout.hpp"

namespace bitsnap::store {

// Opens the files of a record. Decodes nothing, unless several shards hold the same small tensor or box of one, which
// it compares. `threads` as in RunOptions. Errors are those of reading a snapshot.
[[nodiscard]] Result<std::vector<GlobalTensor>> index_tensors(os::FileSystem& file_system, const RunLayout& layout,
                                                              CheckpointReader& reader, const CommitRecord& record,
                                                              const DecodeLimits& limits, unsigned threads);

// From the tensor index, or else from the files.
[[nodiscard]] Result<std::vector<GlobalTensor>> list_tensors(os::FileSystem& file_system, const RunLayout& layout,
                                                             CheckpointReader& reader, const CommitRecord& record,
                                                             const DecodeLimits& limits, unsigned threads);

// nullopt if there is no file, if it is damaged, or if it is of other shards than those of the record.
[[nodiscard]] std::optional<std::vector<GlobalTensor>> read_tensor_index(os::FileSystem& file_system,
                                                                         const RunLayout& layout,
                                                                         const CommitRecord& record);
// Writes the file without any sync.
[[nodiscard]] Result<void> write_tensor_index(os::FileSystem& file_system, const RunLayout& layout,
                                              const CommitRecord& record, std::span<const GlobalTensor> tensors);

}  // namespace bitsnap::store
