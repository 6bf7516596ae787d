// Puts the bytes of files together from the tensors of a snapshot.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include <bitsnap/folder.hpp>

#include "base/bytes.hpp"
#include "interop/folder/folder_impl.hpp"
#include "os/file_system.hpp"

namespace bitsnap::interop {

// The bytes of a file that are in none of its pieces. Reads ahead, because there are few between two tensors.
class RestReader {
 public:
  RestReader(const Snapshot& snapshot, std::size_t tensor) : snapshot_(&snapshot), tensor_(tensor) {}
  // Passes the next `bytes` bytes on.
  [[nodiscard]] Result<void> write_next(std::uint64_t bytes, os::WritableFile& file);

 private:
  static constexpr std::uint64_t kBlockBytes = std::uint64_t{1} << 20;

  const Snapshot* snapshot_;
  std::size_t tensor_;
  std::uint64_t at_ = 0;
  std::uint64_t block_begin_ = 0;
  std::vector<std::byte> block_;
};

// Writes all files of a folder, one after the other, while it decodes the snapshot once.
class FileWriter {
 public:
  using Create = std::function<Result<std::unique_ptr<os::WritableFile>>(std::size_t entry)>;
  using Finish = std::function<Result<void>(std::size_t entry)>;

  // `finish` is called when a file is closed.
  FileWriter(const Folder::Impl& folder, Create create, Finish finish);
  [[nodiscard]] Result<void> run(const RunOptions& options);

 private:
  struct Use {
    std::size_t entry = SIZE_MAX;
    std::optional<std::size_t> piece;  // nullopt: the rest
  };

  Result<void> take(std::size_t tensor, ConstByteSpan bytes);
  // Ends the present file, creates the empty ones on the way, and begins the file of `entry`.
  Result<void> go_to(std::size_t entry);
  Result<void> begin(std::size_t entry);
  Result<void> end();

  const Folder::Impl& folder_;
  const Create create_;
  const Finish finish_;
  std::vector<Use> uses_;  // of each tensor
  std::size_t next_ = 0;   // entry
  std::size_t present_ = SIZE_MAX;
  std::unique_ptr<os::WritableFile> file_;
  std::optional<RestReader> rest_;
};

// Writes the bytes of one file.
[[nodiscard]] Result<void> write_file(const Folder::Impl& folder, std::size_t entry, os::WritableFile& file,
                                      const RunOptions& options);

}  // namespace bitsnap::interop
