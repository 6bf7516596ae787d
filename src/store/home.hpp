// The home of a run: a directory, or what stands for one in a bucket.
#pragma once

#include <string>

#include <bitsnap/error.hpp>

#include "os/file_system.hpp"

namespace bitsnap::store {

struct Home {
  os::FileSystem* files = nullptr;  // lives as long as the process
  std::string path;                 // absolute: calls look up files by path, and the process may change its directory
};

// Of the path of a run or of any other directory. unsupported for a bucket if this program has no client for it.
[[nodiscard]] Result<Home> home_of(const std::string& path);

// The same path for all names of a directory; an address of a bucket without slashes at its end.
[[nodiscard]] std::string canonical_home(const std::string& path);

// Of a run or a branch of one, such as RUN:NAME.
[[nodiscard]] Result<Home> find_home(const std::string& path);

}  // namespace bitsnap::store
