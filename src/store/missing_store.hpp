// What is at a path where a store was expected and none is, or where none may be made: errors that name it, and say
// what to do next. They look at the file system and change nothing.
#pragma once

#include <string>
#include <vector>

#include <bitsnap/error.hpp>

#include "os/file_system.hpp"

namespace bitsnap::store {

// not_found: there is no store at `root`. The message tells a path that does not exist, perhaps by a typing error, a
// file, an empty directory, one inside a store, one above stores, and one with other files from each other.
[[nodiscard]] Error no_store_error(os::FileSystem& files, const std::string& root);

// The second half of that message: what is there.
[[nodiscard]] std::string describe_no_store(os::FileSystem& files, const std::string& root);

// invalid_argument if a new store would get a name that means something else: RUN@STEP, or RUN:BRANCH. A directory that
// exists may have any name.
[[nodiscard]] Result<void> check_new_store_name(os::FileSystem& files, const std::string& root);

// Whether these names may stand in a directory that becomes a store: an interrupted creation leaves them, and so does
// the loss of the run record.
[[nodiscard]] bool is_unfinished_store(const std::vector<std::string>& names);

// The stores in the same directory with a similar name: "; did you mean '/a/run'?", or nothing.
[[nodiscard]] std::string similar_stores(os::FileSystem& files, const std::string& root);

}  // namespace bitsnap::store
