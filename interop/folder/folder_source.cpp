#include "interop/folder/folder_source.hpp"

#include <fmt/format.h>

#include "base/try.hpp"

namespace bitsnap {

std::string FolderState::Source::path_of(std::size_t node) const {
  const std::string& path = nodes_[node].path;
  return path.empty() ? root_ : root_ + "/" + path;
}

Result<FolderState::Source::File> FolderState::Source::open(std::size_t node) const {
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = places_.find(node); found != places_.end()) {
      open_.splice(open_.begin(), open_, found->second);
      return found->second->second;
    }
  }
  // Two threads may open a file at the same time; the second one replaces the first.
  BITSNAP_ASSIGN(File file, files_->open(path_of(node), os::AccessPattern::sequential));
  if (file->size_bytes() != nodes_[node].attributes.size_bytes) {
    return fail(ErrorKind::invalid_argument,
                fmt::format("{}: the file changes while it is being saved: it had {} bytes, now it has {}",
                            path_of(node), nodes_[node].attributes.size_bytes, file->size_bytes()));
  }
  const std::lock_guard lock(mutex_);
  if (const auto found = places_.find(node); found != places_.end()) return found->second->second;
  open_.emplace_front(node, file);
  places_.emplace(node, open_.begin());
  if (open_.size() > kOpenFiles) {
    places_.erase(open_.back().first);
    open_.pop_back();
  }
  return file;
}

Result<void> FolderState::Source::read_at(std::size_t node, std::uint64_t offset, ByteSpan out) const {
  BITSNAP_ASSIGN(const File file, open(node));
  return file->read_at(offset, out);
}

Result<void> FolderState::Source::check_unchanged() const {
  BITSNAP_ASSIGN(const std::vector<os::TreeNode> now, os::read_tree(root_, kMostFolderEntries));
  for (std::size_t i = 0; i < std::max(now.size(), nodes_.size()); ++i) {
    if (i < now.size() && i < nodes_.size() && now[i] == nodes_[i]) continue;
    const bool is_new = i >= nodes_.size() || (i < now.size() && now[i].path < nodes_[i].path);
    const bool is_gone = !is_new && (i >= now.size() || nodes_[i].path < now[i].path);
    const std::string& path = is_new ? now[i].path : nodes_[i].path;
    return fail(ErrorKind::invalid_argument,
                fmt::format("{}: {} while it was being saved", path.empty() ? root_ : root_ + "/" + path,
                            is_new    ? "appeared"
                            : is_gone ? "was removed"
                                      : "changed"));
  }
  return {};
}

Result<void> FolderState::check_unchanged() const {
  return source == nullptr ? Result<void>() : source->check_unchanged();
}

Result<void> FolderState::check_written(const Snapshot& written, const RunOptions& options) const {
  BITSNAP_TRY(check_unchanged());
  BITSNAP_ASSIGN(const std::vector<Damage> damages, written.verify(true, options));
  if (!damages.empty()) {
    return tl::unexpected(
        Error(damages.front().error)
            .within(fmt::format("{}: it was not written as it was read: {}", written.name(), damages.front().where)));
  }
  if (!is_folder(written)) return {};
  BITSNAP_ASSIGN(const std::shared_ptr<const Folder> folder,
                 Folder::open(std::shared_ptr<const Snapshot>(std::shared_ptr<void>(), &written)));
  return folder->check();
}

}  // namespace bitsnap
