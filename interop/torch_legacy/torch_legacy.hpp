// The files of torch.save before torch 1.6, and with _use_new_zipfile_serialization=False (spec.md). Executes nothing.
// Pure function.
#pragma once

#include <string_view>

#include <bitsnap/error.hpp>
#include <bitsnap/limits.hpp>

#include "interop/container/contents.hpp"
#include "interop/container/file_bytes.hpp"
#include "interop/torch_tensors/torch_state.hpp"

namespace bitsnap::interop {

// From the first bytes of a file: a pickle of protocol 2 to 5 that begins with the magic number.
[[nodiscard]] bool looks_like_torch_legacy(std::string_view start) noexcept;

// unsupported if the file does not begin with the magic number, or if the size of an element is not known.
[[nodiscard]] Result<Contents> read_torch_legacy(const FileBytes& bytes, const DecodeLimits& limits);

// What torch.load would return. Errors also as in read_torch_state().
[[nodiscard]] Result<TorchState> read_torch_legacy_state(const FileBytes& bytes, const DecodeLimits& limits);

}  // namespace bitsnap::interop
