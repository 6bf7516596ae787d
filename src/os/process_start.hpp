// Starts programs that live on when the process that started them ends.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <bitsnap/error.hpp>

namespace bitsnap::os {

struct DetachedProgram {
  std::string program;                   // path; PATH is not searched
  std::vector<std::string> arguments;    // without the program's own name
  std::vector<std::string> environment;  // "NAME=value": added to this process's environment, or replacing there
  std::string log_path;                  // file that its output and errors are appended to; empty: they are dropped
};

// Starts the program in its own session, in the directory "/", with default signal handling and no descriptors but
// standard input (empty), output and error. Returns its process number; not_found or io if it could not be started. The
// program is no child of this process, which is not notified of its end (unless this process adopts orphans).
//
// Cheap for a process of any size: no memory is copied or marked copy-on-write.
[[nodiscard]] Result<std::int64_t> start_detached(const DetachedProgram& program);

}  // namespace bitsnap::os
