// Reads the files of torch.save since torch 1.6, and of TorchScript: ZIP archives (spec.md), and writes such archives.
// Executes nothing. Pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include <bitsnap/error.hpp>
#include <bitsnap/limits.hpp>
#include <bitsnap/tensor.hpp>

#include "interop/container/contents.hpp"
#include "interop/container/file_bytes.hpp"
#include "interop/torch_tensors/torch_state.hpp"
#include "interop/zip/zip_writer.hpp"

namespace bitsnap::interop {

// Passes the bytes of a storage to `sink`.
using WriteStorage = std::function<Result<void>(std::size_t storage, const ZipWriter::Sink& sink)>;

// Writes an archive. `pickle` names the storages "0", "1", ..., of `storage_bytes` bytes. Returns the size of the
// archive.
[[nodiscard]] Result<std::uint64_t> write_torch_zip(const std::string& pickle,
                                                    std::span<const std::uint64_t> storage_bytes,
                                                    const WriteStorage& write, const ZipWriter::Sink& sink);

// unsupported if the bytes are a ZIP archive of another kind, or a compressed one.
[[nodiscard]] Result<Contents> read_torch_zip(const FileBytes& bytes, const DecodeLimits& limits);

// What torch.load would return; of TorchScript, its module. Errors also as in read_torch_state().
[[nodiscard]] Result<TorchState> read_torch_zip_state(const FileBytes& bytes, const DecodeLimits& limits);

}  // namespace bitsnap::interop
