// Files of numpy with several arrays: a ZIP archive of .npy files, as numpy.savez writes it. interop/npy/spec.md
#pragma once

#include <bitsnap/error.hpp>
#include <bitsnap/limits.hpp>

#include "interop/container/contents.hpp"
#include "interop/container/file_bytes.hpp"

namespace bitsnap::interop {

// The stored entry "NAME.npy" is the tensor NAME. Compressed entries (numpy.savez_compressed), entries that are not
// arrays and arrays of Python objects are no tensors. Fails as read_zip_directory() does.
[[nodiscard]] Result<Contents> read_npz(const FileBytes& bytes, const DecodeLimits& limits);

}  // namespace bitsnap::interop
