// The folder of a snapshot, open.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <bitsnap/folder.hpp>

#include "base/bytes.hpp"
#include "interop/folder/folder_description.hpp"
#include "interop/zip/zip_checksums.hpp"

namespace bitsnap {

struct Folder::Impl {
  using Patches = std::shared_ptr<const std::vector<interop::ZipPatch>>;

  std::shared_ptr<const Snapshot> snapshot;
  std::string name;
  std::vector<FolderEntry> entries;
  std::vector<interop::FileParts> parts;  // of each entry

  // The entry that holds the bytes of a file; invalid_argument for directories and symbolic links.
  [[nodiscard]] Result<std::size_t> file_of(std::size_t entry) const;
  [[nodiscard]] std::uint64_t piece_end(const interop::FilePiece& piece) const {
    return piece.offset + snapshot->tensors()[piece.tensor].size_bytes;
  }

  // The bytes of a file as it was saved, from its tensors.
  [[nodiscard]] Result<void> read_saved(std::size_t file, std::uint64_t offset, ByteSpan out) const;
  // The checksums of an archive whose tensors lost something: found once, then remembered.
  [[nodiscard]] Result<Patches> patches_of(std::size_t file) const;

 private:
  [[nodiscard]] Result<std::vector<interop::ZipPatch>> find_patches(std::size_t file) const;

  mutable std::mutex mutex_;
  mutable std::map<std::size_t, Patches> patches_;  // guarded by `mutex_`
};

namespace interop {

// Writes what lies in the bytes that begin at `offset` of the file.
void apply_patches(const std::vector<ZipPatch>& patches, std::uint64_t offset, ByteSpan bytes) noexcept;

}  // namespace interop
}  // namespace bitsnap
