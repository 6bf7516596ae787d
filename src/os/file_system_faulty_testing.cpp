// Counts each operation, then passes it on or makes it fail.
#include <array>
#include <atomic>
#include <mutex>
#include <set>
#include <string_view>
#include <utility>

#include "os/file_system_faulty.hpp"

namespace bitsnap::os {
namespace {

constexpr std::array<std::string_view, kFileOperations> kOperationNames = {
    "open",           "read",   "create",         "append",         "sync",
    "close",          "rename", "link",           "remove",         "create directory",
    "list directory", "stat",   "check writable", "sync directory", "lock"};

}  // namespace

std::string_view file_operation_name(FileOperation operation) noexcept {
  return kOperationNames[static_cast<std::size_t>(operation)];
}

// The faults, the counts and the recorded operations; shared by the file system and its open files.
class FaultyFileSystem::Plan {
 public:
  struct Verdict {
    Error error;
    bool half_done;
  };

  // Counts one operation; returns whether and how it fails.
  std::optional<Verdict> next(FileOperation operation, const std::string& path, const std::string& to = {}) {
    tell({operation, path, to});
    const std::lock_guard lock(mutex_);
    return count_and_judge(operation, path, to);
  }

  // The same for a sync, which may also be skipped.
  struct SyncVerdict {
    std::optional<Verdict> failure;
    bool is_skipped;
  };
  SyncVerdict next_sync(FileOperation operation, const std::string& path) {
    tell({operation, path, {}});
    const std::lock_guard lock(mutex_);
    const bool is_skipped = skipped_syncs_.contains(syncs_++);
    return {count_and_judge(operation, path, {}), is_skipped};
  }

  void set(FileOperation operation, std::uint64_t index, const Fault& fault) {
    const std::lock_guard lock(mutex_);
    faults_[static_cast<std::size_t>(operation)] = Planned{index, fault};
  }
  void set(std::uint64_t index, const Fault& fault) {
    const std::lock_guard lock(mutex_);
    fault_of_all_ = Planned{index, fault};
  }
  void skip_sync(std::uint64_t index) {
    const std::lock_guard lock(mutex_);
    skipped_syncs_.insert(index);
  }
  void watch(std::function<void(const Step&)> watcher) { watcher_ = std::move(watcher); }
  void reset() {
    const std::lock_guard lock(mutex_);
    counts_ = {};
    total_ = syncs_ = failures_ = 0;
    faults_ = {};
    fault_of_all_.reset();
    skipped_syncs_.clear();
    steps_.clear();
  }
  std::uint64_t count(FileOperation operation) const {
    const std::lock_guard lock(mutex_);
    return counts_[static_cast<std::size_t>(operation)];
  }
  std::uint64_t total() const {
    const std::lock_guard lock(mutex_);
    return total_;
  }
  std::uint64_t syncs() const {
    const std::lock_guard lock(mutex_);
    return syncs_;
  }
  std::uint64_t failures() const {
    const std::lock_guard lock(mutex_);
    return failures_;
  }
  std::vector<Step> steps() const {
    const std::lock_guard lock(mutex_);
    return steps_;
  }

 private:
  struct Planned {
    std::uint64_t index;
    Fault fault;
  };

  void tell(const Step& step) {
    if (!watcher_ || is_telling_.exchange(true)) return;
    watcher_(step);
    is_telling_ = false;
  }

  std::optional<Verdict> count_and_judge(FileOperation operation, const std::string& path, const std::string& to) {
    steps_.push_back({operation, path, to});
    const auto kind = static_cast<std::size_t>(operation);
    const std::uint64_t index = counts_[kind]++;
    const std::uint64_t index_of_all = total_++;
    for (const auto& [fault, reached] : {std::pair(faults_[kind], index), std::pair(fault_of_all_, index_of_all)}) {
      if (!fault) continue;
      if (reached == fault->index || (fault->fault.lasting && reached > fault->index)) {
        ++failures_;
        return Verdict{
            Error(fault->fault.kind, std::string(file_operation_name(operation)) + " " + path + ": injected fault")
                .with_code(fault->fault.code),
            fault->fault.half_done};
      }
    }
    return std::nullopt;
  }

  std::function<void(const Step&)> watcher_;
  std::atomic<bool> is_telling_ = false;
  mutable std::mutex mutex_;
  std::array<std::uint64_t, kFileOperations> counts_{};
  std::uint64_t total_ = 0;
  std::uint64_t syncs_ = 0;
  std::uint64_t failures_ = 0;
  std::array<std::optional<Planned>, kFileOperations> faults_;
  std::optional<Planned> fault_of_all_;
  std::set<std::uint64_t> skipped_syncs_;
  std::vector<Step> steps_;
};

namespace {

// Does `work`, unless a fault is set for it.
template <typename Verdict, typename Work>
auto obey(std::optional<Verdict> verdict, Work work) -> decltype(work()) {
  if (!verdict) return work();
  if (verdict->half_done) static_cast<void>(work());
  return tl::unexpected<Error>(std::move(verdict->error));
}

}  // namespace

class FaultyFileSystem::Reader final : public RandomAccessFile {
 public:
  Reader(std::shared_ptr<Plan> plan, std::unique_ptr<RandomAccessFile> inner)
      : plan_(std::move(plan)), inner_(std::move(inner)) {}

  Result<void> read_at(std::uint64_t offset, ByteSpan out) const override {
    return obey(plan_->next(FileOperation::read, path()), [&] { return inner_->read_at(offset, out); });
  }
  std::uint64_t size_bytes() const noexcept override { return inner_->size_bytes(); }
  const std::string& path() const noexcept override { return inner_->path(); }

 private:
  const std::shared_ptr<Plan> plan_;
  const std::unique_ptr<RandomAccessFile> inner_;
};

class FaultyFileSystem::Writer final : public WritableFile {
 public:
  Writer(std::shared_ptr<Plan> plan, std::unique_ptr<WritableFile> inner)
      : plan_(std::move(plan)), inner_(std::move(inner)) {}

  Result<void> append(ConstByteSpan bytes) override {
    return sticky(FileOperation::append,
                  [&](bool half) { return inner_->append(half ? bytes.first(bytes.size() / 2) : bytes); });
  }
  Result<void> sync() override {
    if (error_) return tl::unexpected<Error>(*error_);
    Plan::SyncVerdict verdict = plan_->next_sync(FileOperation::sync, path());
    return obey_or_stick(std::move(verdict.failure), [&](bool) -> Result<void> {
      if (verdict.is_skipped) return {};
      return inner_->sync();
    });
  }
  Result<void> close() override {
    return sticky(FileOperation::close, [&](bool) { return inner_->close(); });
  }
  std::uint64_t size_bytes() const noexcept override { return inner_->size_bytes(); }
  const std::string& path() const noexcept override { return inner_->path(); }

 private:
  template <typename Work>
  Result<void> sticky(FileOperation operation, Work work) {
    if (error_) return tl::unexpected<Error>(*error_);
    return obey_or_stick(plan_->next(operation, path()), work);
  }

  // The argument of `work`: whether to do only half.
  template <typename Work>
  Result<void> obey_or_stick(std::optional<Plan::Verdict> verdict, Work work) {
    if (!verdict) return work(false);
    if (verdict->half_done) static_cast<void>(work(true));
    error_ = std::move(verdict->error);
    return tl::unexpected<Error>(*error_);
  }

  const std::shared_ptr<Plan> plan_;
  const std::unique_ptr<WritableFile> inner_;
  std::optional<Error> error_;
};

class FaultyFileSystem::Calls final : public FileSystem {
 public:
  Calls(std::shared_ptr<FileSystem> inner, std::shared_ptr<Plan> plan)
      : inner_(std::move(inner)), plan_(std::move(plan)) {}

  Result<std::unique_ptr<RandomAccessFile>> open(const std::string& path, AccessPattern pattern) override {
    return obey(plan_->next(FileOperation::open, path), [&]() -> Result<std::unique_ptr<RandomAccessFile>> {
      BITSNAP_ASSIGN(auto file, inner_->open(path, pattern));
      return std::make_unique<Reader>(plan_, std::move(file));
    });
  }

  Result<std::unique_ptr<WritableFile>> create(const std::string& path, FileMode mode) override {
    return obey(plan_->next(FileOperation::create, path), [&]() -> Result<std::unique_ptr<WritableFile>> {
      BITSNAP_ASSIGN(auto file, inner_->create(path, mode));
      return std::make_unique<Writer>(plan_, std::move(file));
    });
  }

  Result<void> rename(const std::string& from, const std::string& to) override {
    return obey(plan_->next(FileOperation::rename, from, to), [&] { return inner_->rename(from, to); });
  }

  Result<void> rename_no_replace(const std::string& from, const std::string& to) override {
    return obey(plan_->next(FileOperation::rename, from, to), [&] { return inner_->rename_no_replace(from, to); });
  }

  Result<void> link(const std::string& from, const std::string& to) override {
    return obey(plan_->next(FileOperation::link, from, to), [&] { return inner_->link(from, to); });
  }

  Result<void> remove(const std::string& path) override {
    return obey(plan_->next(FileOperation::remove, path), [&] { return inner_->remove(path); });
  }

  Result<void> create_directory(const std::string& path, FileMode mode) override {
    return obey(plan_->next(FileOperation::create_directory, path),
                [&] { return inner_->create_directory(path, mode); });
  }

  Result<std::vector<std::string>> list_directory(const std::string& path) override {
    return obey(plan_->next(FileOperation::list_directory, path), [&] { return inner_->list_directory(path); });
  }

  Result<FileInfo> stat(const std::string& path) override {
    return obey(plan_->next(FileOperation::stat, path), [&] { return inner_->stat(path); });
  }

  Result<void> check_writable(const std::string& path) override {
    return obey(plan_->next(FileOperation::check_writable, path), [&] { return inner_->check_writable(path); });
  }

  Result<DirectorySync> sync_directory(const std::string& path) override {
    Plan::SyncVerdict verdict = plan_->next_sync(FileOperation::sync_directory, path);
    return obey(std::move(verdict.failure), [&]() -> Result<DirectorySync> {
      if (verdict.is_skipped) return DirectorySync::done;
      return inner_->sync_directory(path);
    });
  }

  Result<std::unique_ptr<FileLock>> lock(const std::string& path, LockKind kind) override {
    return obey(plan_->next(FileOperation::lock, path), [&] { return inner_->lock(path, kind); });
  }

  // With the same faults, counts and watcher.
  std::shared_ptr<FileSystem> without_links(const std::string& root) override {
    return std::make_shared<Calls>(inner_->without_links(root), plan_);
  }

 private:
  const std::shared_ptr<FileSystem> inner_;
  const std::shared_ptr<Plan> plan_;
};

FaultyFileSystem::FaultyFileSystem(FileSystem& inner) : FaultyFileSystem(inner, std::make_shared<Plan>()) {}
FaultyFileSystem::FaultyFileSystem(FileSystem& inner, std::shared_ptr<Plan> plan)
    : ForwardingFileSystem(
          std::make_shared<Calls>(std::shared_ptr<FileSystem>(std::shared_ptr<FileSystem>(), &inner), plan)),
      plan_(std::move(plan)) {}
FaultyFileSystem::~FaultyFileSystem() = default;

void FaultyFileSystem::fail_at(FileOperation operation, std::uint64_t index, Fault fault) {
  plan_->set(operation, index, fault);
}
void FaultyFileSystem::fail_at(std::uint64_t index, Fault fault) { plan_->set(index, fault); }
void FaultyFileSystem::skip_sync(std::uint64_t index) { plan_->skip_sync(index); }
void FaultyFileSystem::watch(std::function<void(const Step&)> watcher) { plan_->watch(std::move(watcher)); }
void FaultyFileSystem::reset() { plan_->reset(); }
std::uint64_t FaultyFileSystem::count(FileOperation operation) const { return plan_->count(operation); }
std::uint64_t FaultyFileSystem::count() const { return plan_->total(); }
std::uint64_t FaultyFileSystem::count_syncs() const { return plan_->syncs(); }
std::vector<FaultyFileSystem::Step> FaultyFileSystem::steps() const { return plan_->steps(); }
std::uint64_t FaultyFileSystem::failures() const { return plan_->failures(); }

}  // namespace bitsnap::os
