// Writes an archive of torch.save (spec.md). Pure function.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include <bitsnap/error.hpp>
#include <bitsnap/tensor.hpp>

#include "interop/zip/zip_writer.hpp"

namespace bitsnap::interop {

// Passes the bytes of a storage to `sink`.
using WriteStorage = std::function<Result<void>(std::size_t storage, const ZipWriter::Sink& sink)>;

// `pickle` names the storages "0", "1", ..., of `storage_bytes` bytes. Returns the size of the archive.
[[nodiscard]] Result<std::uint64_t> write_torch_zip(const std::string& pickle,
                                                    std::span<const std::uint64_t> storage_bytes,
                                                    const WriteStorage& write, const ZipWriter::Sink& sink);

}  // namespace bitsnap::interop
