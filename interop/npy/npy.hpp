// Files of numpy with one array, .npy of versions 1, 2 and 3. interop/npy/spec.md
#pragma once

#include <string_view>

#include <bitsnap/error.hpp>
#include <bitsnap/limits.hpp>

#include "interop/container/contents.hpp"
#include "interop/container/file_bytes.hpp"

namespace bitsnap::interop {

// From the first bytes of a file.
[[nodiscard]] bool looks_like_npy(std::string_view start) noexcept;

// The one tensor "array"; none if the array has no bytes. An array in Fortran order is a tensor of one dimension, and a
// view of the same name. Fails with corrupt or truncated unless `bytes` is one array and nothing else, and with
// unsupported for a newer version, or if the elements are Python objects, which such a file holds as a pickle.
[[nodiscard]] Result<Contents> read_npy(const FileBytes& bytes, const DecodeLimits& limits);

}  // namespace bitsnap::interop
