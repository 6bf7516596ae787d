// Files of numpy: with one array, .npy of versions 1, 2 and 3, and with several, .npz. interop/npy/spec.md
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

// Of a ZIP archive of .npy files, as numpy.savez writes it. The stored entry "NAME.npy" is the tensor NAME. Compressed
// entries (numpy.savez_compressed), entries that are not arrays and arrays of Python objects are no tensors. Fails as
// read_zip_directory() does.
[[nodiscard]] Result<Contents> read_npz(const FileBytes& bytes, const DecodeLimits& limits);

}  // namespace bitsnap::interop
