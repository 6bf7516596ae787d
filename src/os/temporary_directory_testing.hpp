// A temporary directory for tests of the real file system, removed with its contents.
#pragma once

#include <string>

namespace bitsnap::os {

class TemporaryDirectory {
 public:
  TemporaryDirectory();
  ~TemporaryDirectory();
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;

  // Empty if the directory could not be created.
  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  // The path of `name` in the directory.
  [[nodiscard]] std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

}  // namespace bitsnap::os
