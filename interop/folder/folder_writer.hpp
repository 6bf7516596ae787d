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

// Passes the bytes of one file on, in order: the pieces that it is given, and what is between them. With the checksums
// that belong to what the pieces hold now.
class FileAssembler {
 public:
  FileAssembler(const Folder::Impl& folder, std::size_t entry, Folder::Impl::Patches patches, Snapshot::Sink sink);

  // The next bytes of the file are a piece's.
  [[nodiscard]] Result<void> add(ConstByteSpan bytes);
  // The next bytes, up to this offset in the file, are in no piece.
  [[nodiscard]] Result<void> add_rest_until(std::uint64_t offset);

 private:
  static constexpr std::uint64_t kBlockBytes = std::uint64_t{1} << 20;

  const Folder::Impl& folder_;
  const std::size_t entry_;
  const Folder::Impl::Patches patches_;
  const Snapshot::Sink sink_;
  std::uint64_t at_ = 0;       // in the file
  std::uint64_t rest_at_ = 0;  // in the rest
  // Read ahead, because there are few bytes between two tensors.
  std::uint64_t block_begin_ = 0;
  std::vector<std::byte> block_;
};

// Writes all files of a folder, one after the other, while it decodes the snapshot once.
class FolderWriter {
 public:
  using Create = std::function<Result<std::unique_ptr<os::WritableFile>>(std::size_t entry)>;
  using Finish = std::function<Result<void>(std::size_t entry)>;

  // `finish` is called when a file is closed.
  FolderWriter(const Folder::Impl& folder, Create create, Finish finish);
  [[nodiscard]] Result<void> run(const RunOptions& options);

 private:
  struct Use {
    std::size_t entry = SIZE_MAX;
    std::optional<std::size_t> piece = {};  // nullopt: the rest
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
  std::optional<FileAssembler> assembler_;
};

// Passes the bytes of one file on.
[[nodiscard]] Result<void> stream_file(const Folder::Impl& folder, std::size_t entry, const Snapshot::Sink& sink,
                                       const RunOptions& options);

}  // namespace bitsnap::interop
