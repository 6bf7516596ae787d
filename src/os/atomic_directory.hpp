// Writes a directory so that it appears under its name whole, or not at all: everything goes to a new directory beside
// it, is synced, and is renamed. A crash leaves nothing under the name, and perhaps the
// temporary directory. One thread at a time.
#pragma once

#include <string>

#include <bitsnap/error.hpp>

#include "os/file_system.hpp"

namespace bitsnap::os {

class AtomicDirectory {
 public:
  // Creates the temporary directory. invalid_argument, here and in commit(), if the target exists.
  [[nodiscard]] static Result<AtomicDirectory> create(const std::string& path, FileMode mode = kDefaultDirectoryMode);
  AtomicDirectory(AtomicDirectory&& other) noexcept;
  AtomicDirectory& operator=(AtomicDirectory&&) = delete;
  // Removes everything that was written, unless it was committed.
  ~AtomicDirectory();

  // Where to write.
  [[nodiscard]] const std::string& temporary_path() const noexcept { return temporary_; }

  // Makes everything that was written survive a crash of the machine.
  [[nodiscard]] Result<void> sync();
  // Makes the directory appear under its name. May be called once, after sync(): it does not sync the files again.
  [[nodiscard]] Result<void> commit();

 private:
  AtomicDirectory(std::string target, std::string temporary);

  std::string target_;
  std::string temporary_;  // empty: nothing to remove
};

}  // namespace bitsnap::os
