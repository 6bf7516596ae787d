// Gathering files, and keeping the table of them true to the disk.
//
// The disk is always right: where it is not certain that an entry is the file that stands there, the entry goes.
#include "engine/mirror_file_system.hpp"

#include <optional>
#include <utility>

#include <fmt/format.h>

#include "base/try.hpp"

namespace bitsnap::engine {
namespace {

constexpr std::string_view kSuffix = ".bsnap";

// "/" is empty, so that a path and a slash begin whatever lies below.
std::string_view without_slashes(std::string_view path) {
  while (path.ends_with('/')) path.remove_suffix(1);
  return path;
}

bool is_same_file(const os::FileInfo& a, const os::FileInfo& b) {
  return a.is_regular && b.is_regular && a.size_bytes == b.size_bytes && a.file_id == b.file_id &&
         a.modified_ns == b.modified_ns;
}

// Whether a call that failed so has certainly changed nothing.
bool is_refusal(const Error& error) {
  return error.kind() == ErrorKind::invalid_argument || error.kind() == ErrorKind::not_found;
}

}  // namespace

// Gathers, then writes everything at once.
class MirrorFileSystem::Writer final : public os::WritableFile {
 public:
  Writer(MirrorFileSystem& owner, std::unique_ptr<os::WritableFile> file, std::shared_ptr<Entry> entry)
      : owner_(owner), file_(std::move(file)), entry_(std::move(entry)) {}

  ~Writer() override {
    if (!is_closed_) owner_.drop(*entry_);
  }

  Result<void> append(ConstByteSpan bytes) override {
    BITSNAP_TRY(usable("append to"));
    size_bytes_ += bytes.size();
    if (!is_written_) return stick(builder_.append(bytes));
    owner_.drop(*entry_);
    return stick(file_->append(bytes));
  }

  Result<void> sync() override {
    BITSNAP_TRY(usable("sync"));
    BITSNAP_TRY(stick(write()));
    BITSNAP_TRY(stick(file_->sync()));
    keep();
    return {};
  }

  Result<void> close() override {
    if (error_) return tl::unexpected(*error_);
    if (is_closed_) return {};
    is_closed_ = true;
    BITSNAP_TRY(stick(write()));
    BITSNAP_TRY(stick(file_->close()));
    keep();
    return {};
  }

  std::uint64_t size_bytes() const noexcept override { return size_bytes_; }
  const std::string& path() const noexcept override { return file_->path(); }

 private:
  Result<void> usable(std::string_view operation) const {
    if (error_) return tl::unexpected(*error_);
    if (is_closed_) return fail(ErrorKind::invalid_argument, fmt::format("{} {}: it is closed", operation, path()));
    return {};
  }

  Result<void> stick(Result<void> result) {
    if (result) return result;
    error_ = name_file(std::move(result).error(), path());
    owner_.drop(*entry_);
    return tl::unexpected(*error_);
  }

  Result<void> write() {
    if (std::exchange(is_written_, true)) return {};
    BITSNAP_ASSIGN(blob_, builder_.finish());
    if (owner_.on_complete_) owner_.on_complete_(path(), blob_);
    for (std::size_t i = 0; i < blob_->pieces(); ++i) BITSNAP_TRY(file_->append(blob_->piece(i)));
    return {};
  }

  void keep() {
    if (blob_ != nullptr) owner_.keep(*entry_, std::move(blob_));
    blob_.reset();
  }

  MirrorFileSystem& owner_;
  const std::unique_ptr<os::WritableFile> file_;
  const std::shared_ptr<Entry> entry_;
  BlobBuilder builder_;
  std::shared_ptr<const Blob> blob_;  // from the writing until it is kept
  std::uint64_t size_bytes_ = 0;
  bool is_written_ = false;
  bool is_closed_ = false;
  std::optional<Error> error_;
};

MirrorFileSystem::MirrorFileSystem(os::FileSystem& inner, OnComplete on_complete)
    : inner_(inner), on_complete_(std::move(on_complete)) {}

MirrorFileSystem::~MirrorFileSystem() = default;

std::uint64_t MirrorFileSystem::kept_bytes() const {
  const std::lock_guard lock(mutex_);
  std::uint64_t bytes = 0;
  for (const auto& [path, entry] : entries_) bytes += entry->blob ? entry->blob->size_bytes() : 0;
  return bytes;
}

std::shared_ptr<const Blob> MirrorFileSystem::kept(const std::string& path) const {
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(without_slashes(path));
  return found != entries_.end() ? found->second->blob : nullptr;
}

void MirrorFileSystem::forget(const std::string& path) {
  const std::lock_guard lock(mutex_);
  static_cast<void>(take_below(path));
}

void MirrorFileSystem::forget_all_but(FunctionRef<bool(const Blob& blob)> is_wanted) {
  const std::lock_guard lock(mutex_);
  std::erase_if(entries_, [&](const auto& each) {
    const std::shared_ptr<const Blob>& blob = each.second->blob;
    return blob != nullptr && !is_wanted(*blob);
  });
}

Result<std::unique_ptr<os::RandomAccessFile>> MirrorFileSystem::open(const std::string& path,
                                                                     os::AccessPattern pattern) {
  std::shared_ptr<const Entry> entry;
  Entry found;
  {
    const std::lock_guard lock(mutex_);
    const auto at = entries_.find(std::string_view(path));
    if (at != entries_.end() && at->second->blob != nullptr) {
      entry = at->second;
      found = *entry;
    }
  }
  if (entry == nullptr) return inner_.open(path, pattern);
  const Result<os::FileInfo> info = inner_.stat(path);
  if (info && is_same_file(*info, found.file)) return blob_file(std::move(found.blob), path);
  if (info) drop(*entry);
  return inner_.open(path, pattern);
}

Result<std::unique_ptr<os::WritableFile>> MirrorFileSystem::create(const std::string& path, os::FileMode mode) {
  if (!path.ends_with(kSuffix)) return inner_.create(path, mode);
  const std::lock_guard names(names_mutex_);
  BITSNAP_ASSIGN(std::unique_ptr<os::WritableFile> file, inner_.create(path, mode));
  auto entry = std::make_shared<Entry>();
  entry->path = path;
  const std::lock_guard lock(mutex_);
  entries_.insert_or_assign(path, entry);
  return std::make_unique<Writer>(*this, std::move(file), std::move(entry));
}

Result<void> MirrorFileSystem::rename(const std::string& from, const std::string& to) {
  const std::lock_guard names(names_mutex_);
  Result<void> renamed = inner_.rename(from, to);
  follow_rename(from, to, renamed);
  return renamed;
}

Result<void> MirrorFileSystem::rename_no_replace(const std::string& from, const std::string& to) {
  const std::lock_guard names(names_mutex_);
  Result<void> renamed = inner_.rename_no_replace(from, to);
  follow_rename(from, to, renamed);
  return renamed;
}

void MirrorFileSystem::follow_rename(const std::string& from, const std::string& to, const Result<void>& renamed) {
  const std::string_view before = without_slashes(from);
  const std::string_view after = without_slashes(to);
  if (before == after || (!renamed && is_refusal(renamed.error()))) return;
  const std::lock_guard lock(mutex_);
  static_cast<void>(take_below(after));
  std::vector<std::shared_ptr<Entry>> moved = take_below(before);
  if (!renamed) return;
  for (std::shared_ptr<Entry>& entry : moved) {
    entry->path = std::string(after).append(entry->path, before.size());
    entries_.insert_or_assign(entry->path, std::move(entry));
  }
}

Result<void> MirrorFileSystem::remove(const std::string& path) {
  const std::lock_guard names(names_mutex_);
  Result<void> removed = inner_.remove(path);
  if (!removed && removed.error().kind() == ErrorKind::invalid_argument) return removed;  // as of a directory in use
  const std::lock_guard lock(mutex_);
  static_cast<void>(take_below(path));
  return removed;
}

Result<void> MirrorFileSystem::create_directory(const std::string& path, os::FileMode mode) {
  return inner_.create_directory(path, mode);
}

Result<std::vector<std::string>> MirrorFileSystem::list_directory(const std::string& path) {
  return inner_.list_directory(path);
}

Result<os::FileInfo> MirrorFileSystem::stat(const std::string& path) { return inner_.stat(path); }

Result<os::DirectorySync> MirrorFileSystem::sync_directory(const std::string& path) {
  return inner_.sync_directory(path);
}

Result<std::unique_ptr<os::FileLock>> MirrorFileSystem::lock(const std::string& path, os::LockKind kind) {
  return inner_.lock(path, kind);
}

std::vector<std::shared_ptr<MirrorFileSystem::Entry>> MirrorFileSystem::take_below(std::string_view path) {
  path = without_slashes(path);
  std::vector<std::shared_ptr<Entry>> taken;
  if (const auto own = entries_.find(path); own != entries_.end()) {
    taken.push_back(std::move(own->second));
    entries_.erase(own);
  }
  const std::string above = std::string(path) + '/';
  for (auto at = entries_.lower_bound(above); at != entries_.end() && at->first.starts_with(above);) {
    taken.push_back(std::move(at->second));
    at = entries_.erase(at);
  }
  return taken;
}

bool MirrorFileSystem::has(const Entry& entry) const {
  const auto found = entries_.find(entry.path);
  return found != entries_.end() && found->second.get() == &entry;
}

void MirrorFileSystem::drop(const Entry& entry) {
  const std::lock_guard lock(mutex_);
  if (has(entry)) entries_.erase(entry.path);
}

void MirrorFileSystem::keep(Entry& entry, std::shared_ptr<const Blob> blob) {
  const std::lock_guard names(names_mutex_);
  {
    const std::lock_guard lock(mutex_);
    if (!has(entry)) return;  // removed or replaced meanwhile
  }
  // With the names held, nobody here moves it between the look at the disk and the entry.
  const Result<os::FileInfo> info = inner_.stat(entry.path);
  const std::lock_guard lock(mutex_);
  if (!has(entry)) return;
  if (!info || !info->is_regular || info->size_bytes != blob->size_bytes()) {
    entries_.erase(entry.path);
    return;
  }
  entry.blob = std::move(blob);
  entry.file = *info;
}

}  // namespace bitsnap::engine
