// Programs that live on their own, whatever becomes of who started them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <bitsnap/error.hpp>

namespace bitsnap::os {

struct DetachedProgram {
  std::string program;                   // its path; not looked for anywhere
  std::vector<std::string> arguments;    // without the program's own name
  std::vector<std::string> environment;  // "NAME=value": beside this process's, and in its place
  std::string log_path;                  // where its output and errors are appended; nowhere if empty
};

// Starts it in a session of its own, in the directory "/", with no other descriptor than its input (nothing), output
// and errors, and with the signals as they are by default; gives its number. not_found or io if it could not be
// started, for which this waits. It is no child of this process, which never hears of its end, unless this is the
// process that all orphans go to.
//
// Costs a process of any size next to nothing: no memory is copied, or marked to be.
[[nodiscard]] Result<std::int64_t> start_detached(const DetachedProgram& program);

}  // namespace bitsnap::os
