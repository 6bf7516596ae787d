#include "objects/object_file_system.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <set>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "base/bytes.hpp"
#include "base/hash.hpp"
#include "base/try.hpp"
#include "objects/extent_reader.hpp"
#include "objects/object_requests.hpp"
#include "os/atomic_file.hpp"
#include "os/process.hpp"
#include "os/rate_limit.hpp"

namespace bitsnap::objects {
namespace {

// One request gives the size of a file and its end, where snapshots have their index; records are smaller.
constexpr std::uint64_t kTailBytes = std::uint64_t{64} << 10;
constexpr std::uint64_t kHeadBytes = 4096;  // has the header of a snapshot
constexpr std::size_t kMostOpened = 64;
// A file up to this size is one request that fails if the object exists; a larger one is sent in pieces.
constexpr std::size_t kSingleBytes = std::size_t{8} << 20;

tl::unexpected<Error> already_exists(const std::string& path) {
  return fail(ErrorKind::invalid_argument, fmt::format("create {}: it already exists", path));
}

os::FileInfo info_of(const ObjectInfo& object) {
  os::FileInfo info;
  info.exists = true;
  info.is_regular = true;
  info.size_bytes = object.size_bytes;
  info.modified_ns = object.modified_ns;
  info.file_id = hash64(as_byte_span(object.version));
  return info;
}

os::FileInfo directory_info() {
  os::FileInfo info;
  info.exists = true;
  info.is_directory = true;
  return info;
}

void keep_upload_rate(std::size_t bytes) {
  if (const std::uint64_t wait_ns = upload_rate().plan(bytes); wait_ns > 0) {
    std::this_thread::sleep_for(std::chrono::nanoseconds(wait_ns));
  }
}

// Excludes nobody.
class SharedLock final : public os::FileLock {
 public:
  bool is_held() const noexcept override { return process_ == os::process_id(); }

 private:
  const std::int64_t process_ = os::process_id();
};

class HeldLease final : public os::FileLock {
 public:
  explicit HeldLease(std::shared_ptr<Lease> lease) noexcept : lease_(std::move(lease)) {}
  bool is_held() const noexcept override { return lease_->is_held(); }

 private:
  const std::shared_ptr<Lease> lease_;
};

}  // namespace

// An object of one version. Keeps its end, and its beginning once that was read.
class ObjectFileSystem::OpenedObject {
 public:
  OpenedObject(std::shared_ptr<ObjectStore> store, std::string key, std::string path, ObjectTail tail)
      : store_(std::move(store)), key_(std::move(key)), path_(std::move(path)), tail_(std::move(tail)) {}

  // `copies`: of this machine; may be nullptr, likewise below.
  Result<void> read_at(std::uint64_t offset, ByteSpan out, LocalCopies* copies) const {
    if (offset > size_bytes() || out.size() > size_bytes() - offset) {
      return fail(ErrorKind::truncated,
                  fmt::format("read {}: {} bytes at {} of {}", path_, out.size(), offset, size_bytes()));
    }
    if (out.empty()) return {};
    const std::uint64_t tail_begin = size_bytes() - tail_.bytes.size();
    if (offset >= tail_begin) {
      std::memcpy(out.data(), tail_.bytes.data() + (offset - tail_begin), out.size());
      return {};
    }
    if (offset + out.size() > std::min<std::uint64_t>(kHeadBytes, tail_begin)) {
      for (const std::shared_ptr<ExtentReader>& ahead : aheads()) {
        if (ahead->take(offset, out)) return {};
      }
      return fetch(offset, out, copies);
    }
    const std::lock_guard guard(mutex_);
    if (head_.empty()) {
      std::vector<std::byte> head(static_cast<std::size_t>(std::min<std::uint64_t>(kHeadBytes, tail_begin)));
      BITSNAP_TRY(store_->read(key_, tail_.info.version, 0, head));
      head_ = std::move(head);
    }
    std::memcpy(out.data(), head_.data() + offset, out.size());
    return {};
  }
  std::uint64_t size_bytes() const noexcept { return tail_.info.size_bytes; }
  const std::string& path() const noexcept { return path_; }

  // Reads ahead what is not in memory anyway, until end_read_ahead().
  std::shared_ptr<ExtentReader> begin_read_ahead(std::span<const os::FileRange> all, std::uint64_t most_bytes,
                                                 LocalCopies* copies) const {
    std::vector<os::FileRange> ranges(all.begin(), all.end());
    const std::uint64_t tail_begin = size_bytes() - tail_.bytes.size();
    std::erase_if(ranges, [&](const os::FileRange& range) {
      const std::uint64_t end = range.offset + range.size;
      return range.offset >= tail_begin || end > size_bytes() || end <= kHeadBytes;
    });
    auto ahead = std::make_shared<ExtentReader>(
        [this, copies](std::uint64_t offset, ByteSpan out) { return fetch(offset, out, copies); }, ranges, most_bytes);
    const std::lock_guard guard(mutex_);
    aheads_.push_back(ahead);
    return ahead;
  }
  void end_read_ahead(const std::shared_ptr<ExtentReader>& ahead) const {
    const std::lock_guard guard(mutex_);
    std::erase(aheads_, ahead);
  }

 private:
  Result<void> fetch(std::uint64_t offset, ByteSpan out, LocalCopies* copies) const {
    if (copies == nullptr) return store_->read(key_, tail_.info.version, offset, out);
    const std::string name = LocalCopies::name_of(path_, tail_.info.version);
    if (copies->read(name, offset, out)) return {};
    BITSNAP_TRY(store_->read(key_, tail_.info.version, offset, out));
    copies->keep(name, offset, out);
    return {};
  }
  std::vector<std::shared_ptr<ExtentReader>> aheads() const {
    const std::lock_guard guard(mutex_);
    return aheads_;
  }

  const std::shared_ptr<ObjectStore> store_;
  const std::string key_;
  const std::string path_;
  const ObjectTail tail_;
  mutable std::mutex mutex_;
  mutable std::vector<std::byte> head_;
  mutable std::vector<std::shared_ptr<ExtentReader>> aheads_;  // one for each operation
};

class ObjectFileSystem::OpenedFile final : public os::RandomAccessFile {
 public:
  OpenedFile(std::shared_ptr<const OpenedObject> object, LocalCopies* copies)
      : object_(std::move(object)), copies_(copies) {}
  Result<void> read_at(std::uint64_t offset, ByteSpan out) const override {
    return object_->read_at(offset, out, copies_);
  }
  std::uint64_t size_bytes() const noexcept override { return object_->size_bytes(); }
  const std::string& path() const noexcept override { return object_->path(); }
  bool has_requests() const noexcept override { return true; }
  std::unique_ptr<os::ReadAhead> read_ahead(std::span<const os::FileRange> ranges,
                                            std::uint64_t most_bytes) const override {
    return std::make_unique<Ahead>(object_, ranges, most_bytes, copies_);
  }

 private:
  class Ahead final : public os::ReadAhead {
   public:
    Ahead(std::shared_ptr<const OpenedObject> object, std::span<const os::FileRange> ranges, std::uint64_t most_bytes,
          LocalCopies* copies)
        : object_(std::move(object)), reader_(object_->begin_read_ahead(ranges, most_bytes, copies)) {}
    ~Ahead() override { object_->end_read_ahead(reader_); }

   private:
    const std::shared_ptr<const OpenedObject> object_;  // outlives the reader, which reads from it
    const std::shared_ptr<ExtentReader> reader_;
  };

  const std::shared_ptr<const OpenedObject> object_;
  LocalCopies* const copies_;
};

// Errors are sticky, as WritableFile says.
class ObjectFileSystem::NewFile final : public os::WritableFile {
 public:
  NewFile(std::shared_ptr<ObjectFileSystem> files, std::string path, bool is_staged)
      : files_(std::move(files)), path_(std::move(path)), is_staged_(is_staged) {}

  Result<void> append(ConstByteSpan bytes) override {
    if (!error_ && is_done_) error_ = Error(ErrorKind::invalid_argument, "append " + path_ + ": the file is complete");
    return sticky([&]() -> Result<void> {
      size_bytes_ += bytes.size();
      if (upload_ == nullptr && (is_staged_ || buffer_.size() + bytes.size() <= kSingleBytes)) {
        buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
        return {};
      }
      if (upload_ == nullptr) {
        BITSNAP_ASSIGN(const std::string key, files_->key_to_change(path_));
        BITSNAP_ASSIGN(upload_, files_->store_->upload(key));
        BITSNAP_TRY(send(std::exchange(buffer_, {})));
      }
      return send(bytes);
    });
  }
  Result<void> sync() override {
    return is_staged_ ? sticky([] { return Result<void>(); }) : finish();
  }
  Result<void> close() override { return finish(); }
  std::uint64_t size_bytes() const noexcept override { return size_bytes_; }
  const std::string& path() const noexcept override { return path_; }

 private:
  template <typename Work>
  Result<void> sticky(Work&& work) {
    if (error_) return tl::unexpected(*error_);
    Result<void> done = work();
    if (!done) error_ = done.error();
    return done;
  }
  Result<void> send(ConstByteSpan bytes) {
    keep_upload_rate(bytes.size());
    return upload_->append(bytes);
  }
  Result<void> finish() {
    return sticky([&]() -> Result<void> {
      if (std::exchange(is_done_, true)) return {};
      if (is_staged_) {
        const std::lock_guard guard(files_->mutex_);
        files_->staged_[path_] = std::move(buffer_);
        return {};
      }
      if (upload_ != nullptr) {
        BITSNAP_TRY(files_->key_to_change(path_));
        return upload_->finish();
      }
      keep_upload_rate(buffer_.size());
      return files_->create_once(path_, std::exchange(buffer_, {}));
    });
  }

  const std::shared_ptr<ObjectFileSystem> files_;
  const std::string path_;
  const bool is_staged_;
  std::vector<std::byte> buffer_;
  std::unique_ptr<ObjectUpload> upload_;
  std::uint64_t size_bytes_ = 0;
  bool is_done_ = false;
  std::optional<Error> error_;
};

ObjectFileSystem::ObjectFileSystem(std::string bucket, std::shared_ptr<ObjectStore> store, const LeaseTimes& times,
                                   LocalCopies* copies)
    : bucket_(std::move(bucket)), store_(std::move(store)), times_(times), copies_(copies) {}

ObjectFileSystem::~ObjectFileSystem() = default;

Result<std::string> ObjectFileSystem::key_of(const std::string& path) const {
  std::string_view rest = path;
  if (!rest.starts_with(bucket_) || (rest.size() > bucket_.size() && rest[bucket_.size()] != '/')) {
    return fail(ErrorKind::invalid_argument, fmt::format("{}: is not in {}", path, bucket_));
  }
  rest.remove_prefix(bucket_.size());
  std::string key;
  while (!rest.empty()) {  // repeated slashes are one
    const std::size_t end = std::min(rest.find('/'), rest.size());
    const std::string_view part = rest.substr(0, end);
    if (!part.empty()) key.append(key.empty() ? "" : "/").append(part);
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return key;
}

Result<std::string> ObjectFileSystem::key_to_change(const std::string& path) {
  {
    const std::lock_guard guard(mutex_);
    opened_.erase(path);
    for (auto entry = leases_.begin(); entry != leases_.end();) {
      const std::shared_ptr<Lease> lease = entry->second.lock();
      if (lease == nullptr) {
        opened_.clear();
        entry = leases_.erase(entry);
        continue;
      }
      if (!lease->is_held() && path.starts_with(os::parent_directory(entry->first) + "/")) {
        return fail(ErrorKind::busy, fmt::format("{}: the lease {} was lost: this process did not reach the service in "
                                                 "time, and another writer may have taken it; open the run again",
                                                 path, entry->first));
      }
      ++entry;
    }
  }
  return key_of(path);
}

Result<std::unique_ptr<os::RandomAccessFile>> ObjectFileSystem::open(const std::string& path,
                                                                     os::AccessPattern pattern) {
  LocalCopies* const copies = pattern == os::AccessPattern::repeated ? copies_ : nullptr;
  {
    const std::lock_guard guard(mutex_);
    const auto found = opened_.find(path);
    if (found != opened_.end() && is_leased(path)) return std::make_unique<OpenedFile>(found->second, copies);
  }
  BITSNAP_ASSIGN(std::string key, key_of(path));
  BITSNAP_ASSIGN(ObjectTail tail, store_->read_tail(key, kTailBytes));
  auto object = std::make_shared<const OpenedObject>(store_, std::move(key), path, std::move(tail));
  const std::lock_guard guard(mutex_);
  // Snapshots are not changed, and have names that are not used again. Of other files, another thread may have put a
  // new version there meanwhile.
  if (path.ends_with(".bsnap") && is_leased(path)) {
    if (opened_.size() >= kMostOpened) opened_.clear();
    opened_[path] = object;
  }
  return std::make_unique<OpenedFile>(std::move(object), copies);
}

bool ObjectFileSystem::is_leased(const std::string& path) const {
  return std::ranges::any_of(leases_, [&](const auto& entry) {
    const std::shared_ptr<Lease> lease = entry.second.lock();
    return lease != nullptr && lease->is_held() && path.starts_with(os::parent_directory(entry.first) + "/");
  });
}

Result<std::unique_ptr<os::WritableFile>> ObjectFileSystem::create(const std::string& path, os::FileMode /*mode*/) {
  BITSNAP_TRY(key_to_change(path));
  return std::make_unique<NewFile>(shared_from_this(), path, os::AtomicFile::is_temporary_name(os::file_name(path)));
}

std::optional<std::vector<std::byte>> ObjectFileSystem::take_staged(const std::string& path) {
  const std::lock_guard guard(mutex_);
  const auto found = staged_.find(path);
  if (found == staged_.end()) return std::nullopt;
  std::vector<std::byte> bytes = std::move(found->second);
  staged_.erase(found);
  return bytes;
}

Result<void> ObjectFileSystem::create_once(const std::string& path, ConstByteSpan bytes) {
  BITSNAP_ASSIGN(const std::string key, key_of(path));
  const auto may_begin = [&] { return key_to_change(path).map([](const std::string&) {}); };
  BITSNAP_ASSIGN(const auto created, create_object(*store_, key, bytes, may_begin));
  return created ? Result<void>() : already_exists(path);
}

// An object, or all below a directory.
Result<void> ObjectFileSystem::move(const std::string& from, const std::string& to) {
  BITSNAP_ASSIGN(const std::string source, key_to_change(from));
  BITSNAP_ASSIGN(const std::string target, key_to_change(to));
  Result<void> copied = store_->copy(source, target);
  if (copied) return remove(from);
  if (copied.error().kind() != ErrorKind::not_found) return copied;
  BITSNAP_ASSIGN(const ObjectListing below, store_->list(source, true));
  if (below.objects.empty()) return copied;
  for (const ObjectListing::Object& object : below.objects) {
    BITSNAP_TRY(key_to_change(to));
    BITSNAP_TRY(store_->copy(object.key, target + object.key.substr(source.size())));
  }
  for (const ObjectListing::Object& object : below.objects) {
    BITSNAP_TRY(key_to_change(from));
    BITSNAP_TRY(store_->remove(object.key));
  }
  return {};
}

Result<void> ObjectFileSystem::rename(const std::string& from, const std::string& to) {
  const auto staged = take_staged(from);
  if (!staged) return move(from, to);
  BITSNAP_ASSIGN(const std::string key, key_to_change(to));
  return store_->put(key, *staged);
}

Result<void> ObjectFileSystem::rename_no_replace(const std::string& from, const std::string& to) {
  if (const auto staged = take_staged(from)) return create_once(to, *staged);
  BITSNAP_ASSIGN(const os::FileInfo info, stat(to));
  return info.exists ? already_exists(to) : move(from, to);
}

Result<void> ObjectFileSystem::link(const std::string& /*from*/, const std::string& to) {
  return fail(ErrorKind::unsupported, fmt::format("link {}: an object has one name", to));
}

Result<void> ObjectFileSystem::remove(const std::string& path) {
  if (take_staged(path)) return {};
  BITSNAP_ASSIGN(const std::string key, key_to_change(path));
  return store_->remove(key);
}

Result<void> ObjectFileSystem::create_directory(const std::string& path, os::FileMode /*mode*/) {
  return key_to_change(path).map([](const std::string&) {});
}

Result<std::vector<std::string>> ObjectFileSystem::list_directory(const std::string& path) {
  BITSNAP_ASSIGN(const std::string key, key_of(path));
  BITSNAP_ASSIGN(const ObjectListing listing, store_->list(key, false));
  std::set<std::string> names;
  for (const ObjectListing::Object& object : listing.objects) names.emplace(os::file_name(object.key));
  for (const std::string& prefix : listing.prefixes) names.emplace(os::file_name(prefix));
  names.erase("");  // an object whose key ends in a slash, which some programs make for a directory
  return std::vector<std::string>(names.begin(), names.end());
}

Result<std::optional<os::FileSystem::Tree>> ObjectFileSystem::list_tree(const std::string& path) {
  BITSNAP_ASSIGN(const std::string key, key_of(path));
  BITSNAP_ASSIGN(const ObjectListing listing, store_->list(key, true));
  Tree tree;
  for (const ObjectListing::Object& object : listing.objects) {
    tree.emplace(object.key.substr(key.empty() ? 0 : key.size() + 1), info_of(object.info));
  }
  return tree;
}

Result<os::FileInfo> ObjectFileSystem::stat(const std::string& path) {
  {
    const std::lock_guard guard(mutex_);
    if (const auto staged = staged_.find(path); staged != staged_.end()) {
      return info_of({.size_bytes = staged->second.size(), .version = path, .modified_ns = 0});
    }
  }
  BITSNAP_ASSIGN(const std::string key, key_of(path));
  // Files of runs have a dot in their names, directories have none.
  const bool is_file_first = os::file_name(path).find('.') != std::string_view::npos;
  for (const bool as_file : {is_file_first, !is_file_first}) {
    if (as_file && !key.empty()) {
      BITSNAP_ASSIGN(const auto object, store_->find(key));
      if (object) return info_of(*object);
      if (path.ends_with(".json") || path.ends_with(".bsnap") || path.ends_with(".tmp")) return os::FileInfo{};
    } else if (!as_file) {
      BITSNAP_ASSIGN(const ObjectListing below, store_->list(key, false));
      if (!below.objects.empty() || !below.prefixes.empty()) return directory_info();
    }
  }
  return os::FileInfo{};
}

Result<void> ObjectFileSystem::check_writable(const std::string& path) {
  return key_to_change(path).map([](const std::string&) {});
}

Result<os::DirectorySync> ObjectFileSystem::sync_directory(const std::string& path) {
  return key_of(path).map([](const std::string&) { return os::DirectorySync::done; });
}

Result<std::unique_ptr<os::FileLock>> ObjectFileSystem::lock(const std::string& path, os::LockKind kind) {
  BITSNAP_ASSIGN(const std::string key, key_of(path));
  const std::lock_guard taking(taking_);
  if (kind == os::LockKind::shared) {
    BITSNAP_TRY(seen_[path].check(*store_, key, path));
    return std::make_unique<SharedLock>();
  }
  {
    const std::lock_guard guard(mutex_);
    const std::shared_ptr<Lease> own = leases_[path].lock();
    if (own != nullptr && own->is_held()) {
      return fail(ErrorKind::busy, fmt::format("{}: this process, {}, holds it", path, os::process_id()));
    }
  }
  BITSNAP_ASSIGN(std::shared_ptr<Lease> lease, seen_[path].take(store_, key, path, times_));
  const std::lock_guard guard(mutex_);
  opened_.clear();  // they may have changed since
  leases_[path] = lease;
  return std::make_unique<HeldLease>(std::move(lease));
}

std::uint64_t ObjectFileSystem::doubt_ms(const std::string& path) {
  const std::lock_guard taking(taking_);
  const auto seen = seen_.find(path);
  return seen == seen_.end() ? 0 : seen->second.doubt_ms(times_);
}

std::shared_ptr<os::FileSystem> ObjectFileSystem::without_links(const std::string& /*root*/) {
  return shared_from_this();
}

}  // namespace bitsnap::objects
