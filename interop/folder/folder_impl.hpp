// The folder of a snapshot, open.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <bitsnap/folder.hpp>

#include "interop/folder/folder_description.hpp"

namespace bitsnap {

struct Folder::Impl {
  std::shared_ptr<const Snapshot> snapshot;
  std::string name;
  std::vector<FolderEntry> entries;
  std::vector<interop::FileParts> parts;  // of each entry

  // The entry that holds the bytes of a file; invalid_argument for directories and symbolic links.
  [[nodiscard]] Result<std::size_t> file_of(std::size_t entry) const;
  [[nodiscard]] std::uint64_t piece_end(const interop::FilePiece& piece) const {
    return piece.offset + snapshot->tensors()[piece.tensor].size_bytes;
  }
};

}  // namespace bitsnap
