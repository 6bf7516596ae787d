// The files of torch.save since torch 1.6, and of TorchScript: ZIP archives (spec.md). Executes nothing. Pure function.
#pragma once

#include <bitsnap/error.hpp>
#include <bitsnap/limits.hpp>

#include "interop/container/contents.hpp"
#include "interop/container/file_bytes.hpp"
#include "interop/torch_tensors/torch_state.hpp"

namespace bitsnap::interop {

// unsupported if the bytes are a ZIP archive of another kind, or a compressed one.
[[nodiscard]] Result<Contents> read_torch_zip(const FileBytes& bytes, const DecodeLimits& limits);

// What torch.load would return; of TorchScript, its module. Errors also as in read_torch_state().
[[nodiscard]] Result<TorchState> read_torch_zip_state(const FileBytes& bytes, const DecodeLimits& limits);

}  // namespace bitsnap::interop
