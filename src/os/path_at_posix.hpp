// PathAt: a path as system calls take it: a name, relative to an open directory. Used by src/os only; one thread at a
// time.
//
// Below a root that must not contain symbolic links, find() opens the directories on the way to the name one by one,
// each relative to the one before and none through a link. So no link is followed, even if another process puts it
// there in the meantime.
#pragma once

#include <string>
#include <string_view>

#include "base/bytes.hpp"
#include "os/descriptor.hpp"

namespace bitsnap::os {

// Whether the path is below the directory `root`. Nothing is below an empty root.
[[nodiscard]] bool is_below(std::string_view path, std::string_view root) noexcept;

class PathAt {
 public:
  // If `path` is below `root`, returns invalid_argument for a link on the way. Any other path is taken as it is.
  [[nodiscard]] static Result<PathAt> find(std::string_view operation, const std::string& path,
                                           const std::string& root);

  // For openat() and similar calls.
  [[nodiscard]] int directory() const noexcept;
  [[nodiscard]] const char* name() const noexcept { return name_.c_str(); }
  // For fstatat().
  [[nodiscard]] int stat_flags() const noexcept;

  // Opens the name, below the root only if it is not a link. Returns a closed Descriptor, with errno set, if the system
  // call fails.
  [[nodiscard]] Descriptor open(int flags, unsigned mode = 0) const noexcept;

  // The error of open(). If the name is a link, the message says so and what was `expected`.
  [[nodiscard]] tl::unexpected<Error> fail_open(int error, std::string_view operation, std::string_view path,
                                                std::string_view expected) const;

 private:
  Descriptor directory_;  // closed: the working directory
  std::string name_;
  bool follows_links_ = true;
};

}  // namespace bitsnap::os
