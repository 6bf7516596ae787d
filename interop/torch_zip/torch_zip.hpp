// The files of torch.save since torch 1.6, and of TorchScript: ZIP archives (spec.md). Executes nothing. Pure function.
#pragma once

#include <bitsnap/error.hpp>
#include <bitsnap/limits.hpp>

#include "interop/container/contents.hpp"
#include "interop/container/file_bytes.hpp"

namespace bitsnap::interop {

// unsupported if the bytes are a ZIP archive of another kind, or a compressed one.
[[nodiscard]] Result<Contents> read_torch_zip(const FileBytes& bytes, const DecodeLimits& limits);

}  // namespace bitsnap::interop
