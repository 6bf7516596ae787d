// The files of a store as they are: listed and copied, without looking into them.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include <bitsnap/error.hpp>

#include "base/bytes.hpp"
#include "os/file_system.hpp"
#include "store/run_layout.hpp"

namespace bitsnap::store {

// The files of all steps, by path below `checkpoints`.
using StoredFiles = std::map<std::string, os::FileInfo>;

[[nodiscard]] Result<StoredFiles> list_stored_files(os::FileSystem& files, const RunLayout& layout);

// Called before each piece is written; an error ends the copy.
using OnPiece = std::function<Result<void>(std::size_t bytes)>;

// Makes the file `to`, and syncs it. not_found if there is no file `from`.
[[nodiscard]] Result<void> copy_file(os::FileSystem& source, const std::string& from, os::FileSystem& target,
                                     const std::string& to, const OnPiece& on_piece = nullptr);

}  // namespace bitsnap::store
