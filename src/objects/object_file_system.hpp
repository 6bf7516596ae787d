// A bucket as a file system: what the store needs of files, by requests to an object store. Names with slashes stand
// for directories: one exists as long as an object is below it. docs/spec/store.md, "Object stores".
//
// - A file appears whole, when it is synced or closed. Nothing is written to a temporary file: what gets such a name
//   stays in memory until it is renamed, and is then one request, so that AtomicFile needs no rename of the service.
// - rename_no_replace() of such a file is a conditional request.
// - Other renames are copies by the service, and not atomic. There are no links.
// - An exclusive lock is a lease (lease.hpp). Below its directory nothing is changed after it was lost. Shared locks
//   exclude nobody.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <bitsnap/error.hpp>
#include <bitsnap/object_store.hpp>

#include "base/bytes.hpp"
#include "objects/lease.hpp"
#include "objects/local_copies.hpp"
#include "os/file_system.hpp"
#include "os/rate_limit.hpp"

namespace bitsnap::objects {

class ObjectFileSystem final : public os::FileSystem, public std::enable_shared_from_this<ObjectFileSystem> {
 public:
  // All paths begin with `bucket`, such as "s3://bucket". `copies` serves the files that are opened as `repeated`; it
  // may be nullptr, and must outlive the file system.
  ObjectFileSystem(std::string bucket, std::shared_ptr<ObjectStore> store, const LeaseTimes& times = {},
                   LocalCopies* copies = nullptr);
  ~ObjectFileSystem() override;

  Result<std::unique_ptr<os::RandomAccessFile>> open(const std::string& path, os::AccessPattern pattern) override;
  Result<std::unique_ptr<os::WritableFile>> create(const std::string& path, os::FileMode mode) override;
  Result<void> rename(const std::string& from, const std::string& to) override;
  Result<void> rename_no_replace(const std::string& from, const std::string& to) override;
  Result<void> link(const std::string& from, const std::string& to) override;
  Result<void> remove(const std::string& path) override;
  Result<void> create_directory(const std::string& path, os::FileMode mode) override;
  Result<std::vector<std::string>> list_directory(const std::string& path) override;
  Result<os::FileInfo> stat(const std::string& path) override;
  Result<void> check_writable(const std::string& path) override;
  Result<os::DirectorySync> sync_directory(const std::string& path) override;
  Result<std::unique_ptr<os::FileLock>> lock(const std::string& path, os::LockKind kind) override;
  bool has_lasting_locks() const noexcept override { return false; }
  std::uint64_t doubt_ms(const std::string& path) override;
  Result<std::optional<Tree>> list_tree(const std::string& path) override;
  // There are no links.
  std::shared_ptr<os::FileSystem> without_links(const std::string& root) override;

 private:
  class NewFile;
  class OpenedObject;
  class OpenedFile;

  [[nodiscard]] Result<std::string> key_of(const std::string& path) const;
  // The key of an object that is about to change. busy if this process has lost the lease that it held for it.
  [[nodiscard]] Result<std::string> key_to_change(const std::string& path);
  [[nodiscard]] bool is_leased(const std::string& path) const;  // the caller holds mutex_
  [[nodiscard]] std::optional<std::vector<std::byte>> take_staged(const std::string& path);
  [[nodiscard]] Result<void> create_once(const std::string& path, ConstByteSpan bytes);
  [[nodiscard]] Result<void> move(const std::string& from, const std::string& to);

  const std::string bucket_;
  const std::shared_ptr<ObjectStore> store_;
  const LeaseTimes times_;
  LocalCopies* const copies_;
  std::mutex mutex_;                                      // guards staged_, leases_ and opened_
  std::map<std::string, std::vector<std::byte>> staged_;  // files with temporary names, by path
  std::map<std::string, std::weak_ptr<Lease>> leases_;    // those of this process, by the path of the lock
  // Snapshot files that were opened while this process holds a lease for them, by path: nobody else removes these. A
  // save opens the same few again and again.
  std::map<std::string, std::shared_ptr<const OpenedObject>> opened_;
  std::mutex taking_;                      // guards seen_; taken before mutex_
  std::map<std::string, SeenLease> seen_;  // by the path of the lock
};

// The file system of the bucket that a path is in; lives as long as the process. unsupported if no client is there for
// it.
[[nodiscard]] Result<os::FileSystem*> object_file_system(const std::string& path);

// Of all that this process sends to object stores.
[[nodiscard]] os::RateLimit& upload_rate();

}  // namespace bitsnap::objects
