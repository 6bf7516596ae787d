#include "os/file_identity.hpp"

#include <sys/stat.h>

#include "os/errno_error.hpp"
#include "os/file_system.hpp"

namespace bitsnap::os {

std::optional<FileIdentity> identify_file(const std::string& path) {
  struct ::stat info{};
  if (call_again([&] { return ::stat(path.c_str(), &info); }) != 0) return std::nullopt;
  return FileIdentity{info.st_dev, info.st_ino};
}

std::optional<FoundFile> nearest_file(const std::string& path) {
  for (std::string above = path;; above = parent_directory(above)) {
    if (const auto identity = identify_file(above)) return FoundFile{above, *identity};
    if (above == "/" || !above.starts_with('/')) return std::nullopt;
  }
}

}  // namespace bitsnap::os
