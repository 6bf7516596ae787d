// RunMarker: what the file `bitsnap.json` of a directory says about it. In a store, that file is the run record. In a
// framework's folder, it is a reference of an earlier version (docs/spec/reference.md), and the directory is no store.
// Only the first bytes are read: whether a run record is whole is for its reader to find.
#pragma once

#include <cstdint>
#include <string_view>

#include <bitsnap/error.hpp>

#include "os/file_system.hpp"
#include "store/run_layout.hpp"

namespace bitsnap::store {

enum class RunMarker : std::uint8_t {
  none,        // there is no such file
  run_record,  // it begins as a run record
  reference,   // it begins as a reference
  damaged,     // it begins otherwise, or cannot be read
};

[[nodiscard]] RunMarker marker_of(std::string_view beginning);
[[nodiscard]] Result<RunMarker> find_marker(os::FileSystem& file_system, const RunLayout& layout);

}  // namespace bitsnap::store
