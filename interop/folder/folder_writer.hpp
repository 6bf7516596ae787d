// Puts the bytes of files together from the tensors of a snapshot.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include <bitsnap/folder.hpp>

#include "base/bytes.hpp"
#include "interop/folder/folder_impl.hpp"

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

// Writes files of a folder, one after the other, while it decodes their tensors once, and no others.
class FolderWriter {
 public:
  using Begin = std::function<Result<Snapshot::Sink>(std::size_t entry)>;
  using Finish = std::function<Result<void>(std::size_t entry)>;

  // `files`: entries of files, ascending. `begin` is called before the first byte of a file and returns where its bytes
  // go; `finish` is called after the last one.
  FolderWriter(const Folder::Impl& folder, std::vector<std::size_t> files, Begin begin, Finish finish);
  // The progress counts bytes of the files.
  [[nodiscard]] Result<void> run(const RunOptions& options);

 private:
  // A tensor that is read in its order.
  struct Use {
    std::size_t tensor = 0;
    std::size_t file = 0;                   // in `files_`
    std::optional<std::size_t> piece = {};  // nullopt: the file has no pieces, and this is all of it
  };

  Result<void> take(const Use& use, ConstByteSpan bytes);
  // Ends the present file, writes the empty ones on the way, and begins this one, or none after the last.
  Result<void> go_to(std::size_t file);

  const Folder::Impl& folder_;
  const std::vector<std::size_t> files_;
  const Begin begin_;
  const Finish finish_;
  std::vector<Use> uses_;
  std::size_t present_ = SIZE_MAX;  // in `files_`
  std::optional<FileAssembler> assembler_;
  Progress progress_;
  std::uint64_t done_bytes_ = 0;
  std::uint64_t total_bytes_ = 0;
};

// Passes the bytes of one file on.
[[nodiscard]] Result<void> stream_file(const Folder::Impl& folder, std::size_t entry, const Snapshot::Sink& sink,
                                       const RunOptions& options);

}  // namespace bitsnap::interop
