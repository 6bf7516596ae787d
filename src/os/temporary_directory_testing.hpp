// A directory of its own for a test of the real file system, removed with all that is in it.
#pragma once

#include <string>

namespace bitsnap::os {

class TemporaryDirectory {
 public:
  TemporaryDirectory();
  ~TemporaryDirectory();
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;

  // Empty if none could be made.
  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  // The path of something in it.
  [[nodiscard]] std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

}  // namespace bitsnap::os
