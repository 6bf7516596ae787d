// The bytes of a file, from the tensors of the snapshot.
#include <algorithm>
#include <utility>

#include "base/try.hpp"
#include "interop/folder/container_kinds.hpp"
#include "interop/folder/folder_impl.hpp"

namespace bitsnap {

Result<void> Folder::Impl::read_saved(std::size_t file, std::uint64_t offset, ByteSpan out) const {
  const interop::FileParts& of_file = parts[file];
  const std::vector<interop::FilePiece>& pieces = of_file.pieces;
  auto piece = std::ranges::upper_bound(pieces, offset, {}, &interop::FilePiece::offset);
  if (piece != pieces.begin() && piece_end(*(piece - 1)) > offset) --piece;
  while (!out.empty()) {
    const bool is_in_piece = piece != pieces.end() && piece->offset <= offset;
    const std::uint64_t next = piece != pieces.end() ? piece->offset : entries[file].size_bytes;
    const std::uint64_t end = is_in_piece ? piece_end(*piece) : next;
    const auto count = static_cast<std::size_t>(std::min<std::uint64_t>(out.size(), end - offset));
    const std::size_t tensor = is_in_piece ? piece->tensor : *of_file.rest;
    std::uint64_t at = offset;
    if (is_in_piece) {
      at -= piece->offset;
    } else if (piece != pieces.begin()) {
      at = (piece - 1)->rest + (offset - piece_end(*(piece - 1)));
    }
    BITSNAP_TRY(snapshot->read_bytes(tensor, at, out.first(count)));
    out = out.subspan(count);
    offset += count;
    if (is_in_piece && offset == end) ++piece;
  }
  return {};
}

Result<Folder::Impl::Patches> Folder::Impl::patches_of(std::size_t file) const {
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = patches_.find(file); found != patches_.end()) return found->second;
  }
  BITSNAP_ASSIGN(std::vector<interop::ZipPatch> found, find_patches(file));
  auto patches = std::make_shared<const std::vector<interop::ZipPatch>>(std::move(found));
  const std::lock_guard lock(mutex_);
  return patches_.try_emplace(file, std::move(patches)).first->second;
}

Result<std::vector<interop::ZipPatch>> Folder::Impl::find_patches(std::size_t file) const {
  std::vector<interop::ByteRange> changed;
  const interop::ContainerKind* const kind = interop::find_container_kind(entries[file].container);
  if (kind == nullptr || !kind->has_checksums) return std::vector<interop::ZipPatch>();
  for (const interop::FilePiece& piece : parts[file].pieces) {
    const std::optional<std::size_t> stream = snapshot->stream_of(piece.tensor);
    if (stream && snapshot->quantizer(*stream)) changed.push_back({piece.offset, piece_end(piece) - piece.offset});
  }
  if (changed.empty()) return std::vector<interop::ZipPatch>();
  const interop::FileBytes bytes(entries[file].size_bytes, [this, file](std::uint64_t offset, ByteSpan out) {
    return read_saved(file, offset, out);
  });
  BITSNAP_ASSIGN(const auto entries_of_archive, interop::read_zip_directory(bytes, {}));
  return interop::correct_zip_checksums(bytes, entries_of_archive, changed);
}

void interop::apply_patches(const std::vector<ZipPatch>& patches, std::uint64_t offset, ByteSpan bytes) noexcept {
  const std::uint64_t end = offset + bytes.size();
  const auto first = std::ranges::lower_bound(patches, offset, {}, [](const ZipPatch& patch) {
    return patch.offset + patch.bytes.size() - 1;  // its last byte
  });
  for (auto patch = first; patch != patches.end() && patch->offset < end; ++patch) {
    for (std::size_t i = 0; i < patch->bytes.size(); ++i) {
      const std::uint64_t at = patch->offset + i;
      if (at >= offset && at < end) bytes[static_cast<std::size_t>(at - offset)] = patch->bytes[i];
    }
  }
}

}  // namespace bitsnap
