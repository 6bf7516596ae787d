// Writes a folder, or one of its files. Everything goes to a new directory that nobody else knows, which gets its name
// at the end: so nothing is written through a link, and a crash leaves no half of a folder under its name.
#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "base/no_throw.hpp"
#include "base/try.hpp"
#include "interop/folder/folder_impl.hpp"
#include "interop/folder/folder_writer.hpp"
#include "os/atomic_directory.hpp"
#include "os/atomic_file.hpp"
#include "os/file_attributes.hpp"
#include "os/file_system.hpp"

namespace bitsnap {
namespace {

constexpr std::uint32_t kPrivateDirectoryMode = 0700;
constexpr std::uint32_t kPrivateFileMode = 0600;
// A file from a snapshot does not run as another user, whoever extracts it. Directories may pass on their group.
constexpr std::uint32_t kFileModes = 01777;
constexpr std::uint32_t kDirectoryModes = 03777;

class FolderExtraction {
 public:
  // `left_out`: entries of files, ascending.
  FolderExtraction(const Folder::Impl& folder, std::span<const std::size_t> left_out, os::AtomicDirectory& directory)
      : folder_(folder), left_out_(left_out), directory_(directory), root_(directory.temporary_path()) {}

  Result<void> run(const RunOptions& options) {
    for (const FolderEntry& entry : folder_.entries) {
      if (entry.kind == EntryKind::directory && !entry.path.empty()) {
        BITSNAP_TRY(files().create_directory(path_of(entry), kPrivateDirectoryMode));
      }
    }
    BITSNAP_TRY(write_files(options));
    for (std::size_t number = 0; number < folder_.entries.size(); ++number) {
      const FolderEntry& entry = folder_.entries[number];
      if (is_left_out(number)) continue;
      if (entry.kind == EntryKind::hard_link) BITSNAP_TRY(files().link(root_ + "/" + entry.target, path_of(entry)));
      if (entry.kind == EntryKind::symbolic_link) BITSNAP_TRY(os::create_symbolic_link(entry.target, path_of(entry)));
    }
    BITSNAP_TRY(directory_.sync());
    // The content of a directory changes its time, so directories come last, from the deepest up.
    for (auto entry = folder_.entries.rbegin(); entry != folder_.entries.rend(); ++entry) {
      if (entry->kind == EntryKind::directory) {
        BITSNAP_TRY(os::write_attributes(path_of(*entry), os::NodeKind::directory, entry->mode & kDirectoryModes,
                                         entry->modified_ns));
      } else if (entry->kind == EntryKind::symbolic_link) {
        BITSNAP_TRY(os::write_attributes(path_of(*entry), os::NodeKind::symbolic_link, 0, entry->modified_ns));
      }
    }
    return {};
  }

 private:
  static os::FileSystem& files() { return os::real_file_system(); }
  [[nodiscard]] std::string path_of(const FolderEntry& entry) const {
    return entry.path.empty() ? root_ : root_ + "/" + entry.path;
  }
  [[nodiscard]] bool is_left_out(std::size_t entry) const { return std::ranges::binary_search(left_out_, entry); }

  // Tensors arrive in the order of the files. Reads none of the files that are left out.
  Result<void> write_files(const RunOptions& options) {
    std::vector<std::size_t> written;
    for (std::size_t entry = 0; entry < folder_.entries.size(); ++entry) {
      if (folder_.entries[entry].kind == EntryKind::file && !is_left_out(entry)) written.push_back(entry);
    }
    std::unique_ptr<os::WritableFile> file;
    const auto begin = [&](std::size_t entry) -> Result<Snapshot::Sink> {
      BITSNAP_ASSIGN(file, files().create(path_of(folder_.entries[entry]), kPrivateFileMode));
      return [&file](ConstByteSpan bytes) { return file->append(bytes); };
    };
    const auto finish = [&](std::size_t number) -> Result<void> {
      BITSNAP_TRY(file->close());
      const FolderEntry& entry = folder_.entries[number];
      return os::write_attributes(path_of(entry), os::NodeKind::file, entry.mode & kFileModes, entry.modified_ns);
    };
    return interop::FolderWriter(folder_, std::move(written), begin, finish).run(options);
  }

  const Folder::Impl& folder_;
  const std::span<const std::size_t> left_out_;
  os::AtomicDirectory& directory_;
  const std::string root_;
};

}  // namespace

Result<void> Folder::extract(const std::string& path, const RunOptions& options) const {
  return extract_without({}, path, options);
}

Result<void> Folder::extract_without(std::span<const std::size_t> left_out, const std::string& path,
                                     const RunOptions& options) const {
  return no_throw("extracting a folder", [&]() -> Result<void> {
    if (impl_->entries.front().kind == EntryKind::file) return extract_file(0, path, false, options);
    BITSNAP_ASSIGN(os::AtomicDirectory folder, os::AtomicDirectory::create(path, kPrivateDirectoryMode));
    BITSNAP_TRY(FolderExtraction(*impl_, left_out, folder).run(options));
    return folder.commit();
  });
}

Result<void> Folder::extract_file(std::size_t entry, const std::string& path, bool overwrite,
                                  const RunOptions& options) const {
  return no_throw("extracting a file", [&]() -> Result<void> {
    BITSNAP_ASSIGN(const std::size_t file, impl_->file_of(entry));
    if (overwrite) BITSNAP_TRY(impl_->snapshot->check_not_needed(path));
    BITSNAP_ASSIGN(os::AtomicFile target,
                   os::AtomicFile::create(os::real_file_system(), path, overwrite, kPrivateFileMode));
    const auto sink = [&target](ConstByteSpan bytes) { return target.file().append(bytes); };
    BITSNAP_TRY(interop::stream_file(*impl_, file, sink, options));
    const FolderEntry& written = impl_->entries[file];
    return target.commit([&](const std::string& temporary) {
      return os::write_attributes(temporary, os::NodeKind::file, written.mode & kFileModes, written.modified_ns);
    });
  });
}

}  // namespace bitsnap
