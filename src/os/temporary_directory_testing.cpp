// Created where the system keeps temporary files.
#include "os/temporary_directory_testing.hpp"

#include <cstdlib>
#include <filesystem>
#include <system_error>

namespace bitsnap::os {

TemporaryDirectory::TemporaryDirectory() {
  std::error_code error;
  std::string pattern = (std::filesystem::temp_directory_path(error) / "bitsnap-test-XXXXXX").string();
  if (!error && mkdtemp(pattern.data()) != nullptr) path_ = pattern;
}

TemporaryDirectory::~TemporaryDirectory() {
  if (path_.empty()) return;
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace bitsnap::os
