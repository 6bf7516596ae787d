#include "store/stored_files.hpp"

#include <algorithm>
#include <vector>

#include "base/try.hpp"

namespace bitsnap::store {
namespace {

constexpr std::size_t kCopyBytes = std::size_t{4} << 20;

}  // namespace

Result<StoredFiles> list_stored_files(os::FileSystem& files, const RunLayout& layout) {
  BITSNAP_ASSIGN(auto tree, files.list_tree(layout.checkpoints()));
  if (tree) {
    std::erase_if(*tree, [](const auto& entry) { return !step_from_name(os::parent_directory(entry.first)); });
    return *std::move(tree);
  }
  StoredFiles found;
  BITSNAP_ASSIGN(const std::vector<std::string> steps, files.list_directory(layout.checkpoints()));
  for (const std::string& step : steps) {
    if (!step_from_name(step)) continue;
    const auto names = files.list_directory(os::join_path(layout.checkpoints(), step));
    if (!names && names.error().kind() == ErrorKind::not_found) continue;  // a writer has removed it
    if (!names) return tl::unexpected(names.error());
    for (const std::string& name : *names) {
      const std::string path = os::join_path(step, name);
      BITSNAP_ASSIGN(const os::FileInfo info, files.stat(os::join_path(layout.checkpoints(), path)));
      if (info.is_regular) found.emplace(path, info);
    }
  }
  return found;
}

Result<void> copy_file(os::FileSystem& source, const std::string& from, os::FileSystem& target, const std::string& to,
                       const OnPiece& on_piece) {
  BITSNAP_ASSIGN(const auto input, source.open(from, os::AccessPattern::sequential));
  BITSNAP_ASSIGN(const auto output, target.create(to));
  std::vector<std::byte> block(static_cast<std::size_t>(std::min<std::uint64_t>(kCopyBytes, input->size_bytes())));
  for (std::uint64_t offset = 0; offset < input->size_bytes(); offset += kCopyBytes) {
    const auto size = static_cast<std::size_t>(std::min<std::uint64_t>(kCopyBytes, input->size_bytes() - offset));
    if (on_piece) BITSNAP_TRY(on_piece(size));
    BITSNAP_TRY(input->read_at(offset, ByteSpan(block).first(size)));
    BITSNAP_TRY(output->append(ConstByteSpan(block).first(size)));
  }
  BITSNAP_TRY(output->sync());
  return output->close();
}

}  // namespace bitsnap::store
