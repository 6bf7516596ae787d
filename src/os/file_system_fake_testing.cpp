// File operations on the nodes of fake_disk_testing.hpp. One mutex guards everything.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <utility>

#include "os/errno_error.hpp"
#include "os/fake_disk_testing.hpp"
#include "os/file_system_fake.hpp"

namespace bitsnap::os {
namespace {

using fake::holds;
using fake::Node;

std::vector<std::string> path_parts(std::string_view path) {
  std::vector<std::string> parts;
  while (!path.empty()) {
    const std::size_t end = std::min(path.find('/'), path.size());
    const std::string_view part = path.substr(0, end);
    if (!part.empty() && part != ".") parts.emplace_back(part);
    path.remove_prefix(std::min(end + 1, path.size()));
  }
  return parts;
}

// A file with several names counts once.
std::uint64_t total_bytes(const Node& node, std::set<const Node*>& seen) {
  if (!seen.insert(&node).second) return 0;
  std::uint64_t total = node.contents.size();
  for (const auto& [name, child] : node.entries) total += total_bytes(*child, seen);
  return total;
}

// Reduces a node and everything below it to what survives a crash. `lose` decides what survives besides.
template <typename Lose>
void crash_node(Node& node, std::int64_t& changes, std::set<Node*>& seen, const Lose& lose) {
  if (!seen.insert(&node).second) return;
  lose(node);
  if (node.contents != node.synced_contents || node.entries != node.synced_entries) node.modified = ++changes;
  node.contents = node.synced_contents;
  node.entries = node.synced_entries;
  for (const auto& [name, child] : node.entries) crash_node(*child, changes, seen, lose);
}

}  // namespace

struct FakeFileSystem::State {
  mutable std::mutex mutex;
  State() = default;
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  // Two directories may contain each other: one by a name that programs see, one by a name that is synced.
  ~State() {
    for (const std::weak_ptr<Node>& directory : directories) {
      const std::shared_ptr<Node> node = directory.lock();
      if (node == nullptr) continue;
      node->entries.clear();
      node->synced_entries.clear();
    }
  }

  std::uint64_t nodes = 0;
  std::int64_t changes = 0;                      // the time of this file system
  std::vector<std::weak_ptr<Node>> directories;  // all that were ever created
  std::shared_ptr<Node> root = make_node(true);
  fake::UnsyncedChanges unsynced;
  std::uint64_t crashes = 0;  // files opened and locks taken before the last crash are dead
  struct HeldFile {
    LockKind kind;
    std::uint64_t holders;
  };
  std::map<const Node*, HeldFile> locks;
  bool has_directory_sync = true;
  bool has_links = true;
  std::uint64_t space_bytes = std::numeric_limits<std::uint64_t>::max();

  std::shared_ptr<Node> make_node(bool is_directory) {
    auto node = std::make_shared<Node>(is_directory, ++nodes);
    node->modified = ++changes;
    if (is_directory) directories.push_back(node);
    return node;
  }

  // Changes what programs see under a name; nullptr removes it.
  void set_entry(const std::shared_ptr<Node>& directory, const std::string& name, const std::shared_ptr<Node>& node) {
    unsynced.set_entry(directory, name, node);
    directory->modified = ++changes;
  }

  template <typename Lose>
  void crash(const Lose& lose) {
    ++crashes;
    locks.clear();
    unsynced.clear();
    std::set<Node*> seen;
    crash_node(*root, changes, seen, lose);
  }

  // The node at a path, or an errno.
  std::pair<std::shared_ptr<Node>, int> find(const std::vector<std::string>& parts) const {
    std::shared_ptr<Node> node = root;
    for (const std::string& part : parts) {
      if (!node->is_directory) return {nullptr, ENOTDIR};
      const auto entry = node->entries.find(part);
      if (entry == node->entries.end()) return {nullptr, ENOENT};
      node = entry->second;
    }
    return {node, 0};
  }

  // The directories from the root to the one that holds the last part of a path.
  std::vector<std::shared_ptr<Node>> way_to(const std::string& path) const {
    std::vector<std::shared_ptr<Node>> way{root};
    const std::vector<std::string> parts = path_parts(path);
    for (std::size_t i = 0; i + 1 < parts.size(); ++i) way.push_back(way.back()->entries.at(parts[i]));
    return way;
  }

  // The directory that holds, or would hold, the last part of a path, and that part.
  struct Place {
    std::shared_ptr<Node> directory;
    std::string name;
    std::shared_ptr<Node> node;  // nullptr: the path does not exist
  };
  Result<Place> place(std::string_view operation, const std::string& path) const {
    BITSNAP_TRY(check_path(operation, path));
    std::vector<std::string> parts = path_parts(path);
    if (parts.empty()) return fail_errno(EBUSY, operation, path);  // the root
    Place result;
    result.name = std::move(parts.back());
    parts.pop_back();
    auto [directory, error] = find(parts);
    if (error == 0 && !directory->is_directory) error = ENOTDIR;
    if (error != 0) return fail_errno(error, operation, path);
    const auto entry = directory->entries.find(result.name);
    if (entry != directory->entries.end()) result.node = entry->second;
    result.directory = std::move(directory);
    return result;
  }

  Result<void> rename(const std::string& from, const std::string& to, bool replace) {
    const std::string operation = "rename " + from + " to";
    BITSNAP_ASSIGN(const Place source, place("rename", from));
    if (source.node == nullptr) return fail_errno(ENOENT, operation, to);
    BITSNAP_ASSIGN(const Place target, place(operation, to));
    if (target.node != nullptr) {
      if (!replace) return fail_errno(EEXIST, operation, to);
      if (target.node == source.node) return {};
      if (target.node->is_directory && !source.node->is_directory) return fail_errno(EISDIR, operation, to);
      if (!target.node->is_directory && source.node->is_directory) return fail_errno(ENOTDIR, operation, to);
      if (!target.node->entries.empty()) return fail_errno(ENOTEMPTY, operation, to);
    }
    if (source.node->is_directory && holds(*source.node, target.directory.get())) {
      return fail_errno(EINVAL, operation, to);
    }
    unsynced.move(source.directory, source.name, way_to(to), target.name);
    source.directory->modified = target.directory->modified = ++changes;
    return {};
  }
};

class FakeFileSystem::Reader final : public RandomAccessFile {
 public:
  Reader(std::shared_ptr<State> state, std::shared_ptr<Node> node, std::string path)
      : state_(std::move(state)),
        node_(std::move(node)),
        path_(std::move(path)),
        size_bytes_(node_->contents.size()),
        crashes_(state_->crashes) {}

  Result<void> read_at(std::uint64_t offset, ByteSpan out) const override {
    const std::lock_guard lock(state_->mutex);
    if (crashes_ != state_->crashes) return fail(ErrorKind::io, "read " + path_ + ": the machine crashed");
    const std::uint64_t size = node_->contents.size();
    if (out.empty()) return {};
    if (offset > size || out.size() > size - offset) {
      return fail(ErrorKind::truncated, "read " + path_ + " at offset " + std::to_string(offset) + ": expected " +
                                            std::to_string(out.size()) + " bytes, found " +
                                            std::to_string(offset > size ? 0 : size - offset) +
                                            " before the end of the file");
    }
    std::memcpy(out.data(), node_->contents.data() + offset, out.size());
    return {};
  }

  std::uint64_t size_bytes() const noexcept override { return size_bytes_; }
  const std::string& path() const noexcept override { return path_; }

 private:
  const std::shared_ptr<State> state_;
  const std::shared_ptr<Node> node_;
  const std::string path_;
  const std::uint64_t size_bytes_;
  const std::uint64_t crashes_;
};

class FakeFileSystem::Writer final : public WritableFile {
 public:
  Writer(std::shared_ptr<State> state, std::shared_ptr<Node> node, std::string path)
      : state_(std::move(state)), node_(std::move(node)), path_(std::move(path)), crashes_(state_->crashes) {}

  Result<void> append(ConstByteSpan bytes) override {
    const std::lock_guard lock(state_->mutex);
    BITSNAP_TRY(usable("append to"));
    size_bytes_ += bytes.size();
    std::size_t fits = bytes.size();
    if (state_->space_bytes != std::numeric_limits<std::uint64_t>::max()) {
      std::set<const Node*> seen;
      const std::uint64_t used = total_bytes(*state_->root, seen);
      const std::uint64_t left = used < state_->space_bytes ? state_->space_bytes - used : 0;
      fits = static_cast<std::size_t>(std::min<std::uint64_t>(fits, left));
    }
    node_->contents.insert(node_->contents.end(), bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(fits));
    if (fits > 0) node_->modified = ++state_->changes;
    if (fits == bytes.size()) return {};
    error_ = errno_error(ENOSPC, "write", path_);
    return tl::unexpected<Error>(*error_);
  }

  Result<void> sync() override {
    const std::lock_guard lock(state_->mutex);
    BITSNAP_TRY(usable("sync"));
    node_->synced_contents = node_->contents;
    return {};
  }

  Result<void> close() override {
    const std::lock_guard lock(state_->mutex);
    if (!error_ && closed_) return {};
    BITSNAP_TRY(usable("close"));
    closed_ = true;
    return {};
  }

  std::uint64_t size_bytes() const noexcept override { return size_bytes_; }
  const std::string& path() const noexcept override { return path_; }

 private:
  Result<void> usable(std::string_view operation) {
    if (!error_ && crashes_ != state_->crashes) {
      error_ = Error(ErrorKind::io, std::string(operation) + " " + path_ + ": the machine crashed");
    }
    if (error_) return tl::unexpected<Error>(*error_);
    if (closed_) return fail(ErrorKind::invalid_argument, std::string(operation) + " " + path_ + ": it is closed");
    return {};
  }

  const std::shared_ptr<State> state_;
  const std::shared_ptr<Node> node_;
  const std::string path_;
  const std::uint64_t crashes_;
  std::uint64_t size_bytes_ = 0;
  bool closed_ = false;
  std::optional<Error> error_;
};

class FakeFileSystem::Lock final : public FileLock {
 public:
  Lock(std::shared_ptr<State> state, std::shared_ptr<Node> node)
      : state_(std::move(state)), node_(std::move(node)), crashes_(state_->crashes) {}
  ~Lock() override {
    const std::lock_guard lock(state_->mutex);
    if (crashes_ != state_->crashes) return;
    const auto held = state_->locks.find(node_.get());
    if (--held->second.holders == 0) state_->locks.erase(held);
  }

  bool is_held() const noexcept override {
    const std::lock_guard lock(state_->mutex);
    return crashes_ == state_->crashes;
  }

 private:
  const std::shared_ptr<State> state_;
  const std::shared_ptr<Node> node_;
  const std::uint64_t crashes_;
};

class FakeFileSystem::Calls final : public FileSystem {
 public:
  explicit Calls(std::shared_ptr<State> state) : state_(std::move(state)) {}

  Result<std::unique_ptr<RandomAccessFile>> open(const std::string& path, AccessPattern) override {
    BITSNAP_TRY(check_path("open", path));
    const std::lock_guard lock(state_->mutex);
    auto [node, error] = state_->find(path_parts(path));
    if (error == 0 && node->is_directory) error = EISDIR;
    if (error != 0) return fail_errno(error, "open", path);
    return std::make_unique<Reader>(state_, std::move(node), path);
  }

  Result<std::unique_ptr<WritableFile>> create(const std::string& path, FileMode) override {
    const std::lock_guard lock(state_->mutex);
    BITSNAP_ASSIGN(State::Place place, state_->place("create", path));
    if (place.node != nullptr) return fail_errno(EEXIST, "create", path);
    auto node = state_->make_node(false);
    state_->set_entry(place.directory, place.name, node);
    return std::make_unique<Writer>(state_, std::move(node), path);
  }

  Result<void> rename(const std::string& from, const std::string& to) override {
    const std::lock_guard lock(state_->mutex);
    return state_->rename(from, to, true);
  }

  Result<void> rename_no_replace(const std::string& from, const std::string& to) override {
    const std::lock_guard lock(state_->mutex);
    return state_->rename(from, to, false);
  }

  Result<void> link(const std::string& from, const std::string& to) override {
    const std::lock_guard lock(state_->mutex);
    const std::string operation = "link " + from + " to";
    BITSNAP_ASSIGN(const State::Place source, state_->place("link", from));
    if (source.node == nullptr) return fail_errno(ENOENT, operation, to);
    BITSNAP_ASSIGN(const State::Place target, state_->place(operation, to));
    if (target.node != nullptr) return fail_errno(EEXIST, operation, to);
    if (!state_->has_links || source.node->is_directory) {
      return fail(ErrorKind::unsupported, operation + " " + to + ": no links here");
    }
    state_->set_entry(target.directory, target.name, source.node);
    return {};
  }

  Result<void> remove(const std::string& path) override {
    const std::lock_guard lock(state_->mutex);
    BITSNAP_ASSIGN(const State::Place place, state_->place("remove", path));
    if (place.node == nullptr) return fail_errno(ENOENT, "remove", path);
    if (!place.node->entries.empty()) return fail_errno(ENOTEMPTY, "remove", path);
    state_->set_entry(place.directory, place.name, nullptr);
    return {};
  }

  Result<void> create_directory(const std::string& path, FileMode) override {
    const std::lock_guard lock(state_->mutex);
    BITSNAP_ASSIGN(State::Place place, state_->place("create directory", path));
    if (place.node != nullptr) return fail_errno(EEXIST, "create directory", path);
    state_->set_entry(place.directory, place.name, state_->make_node(true));
    return {};
  }

  Result<std::vector<std::string>> list_directory(const std::string& path) override {
    BITSNAP_TRY(check_path("list directory", path));
    const std::lock_guard lock(state_->mutex);
    auto [node, error] = state_->find(path_parts(path));
    if (error == 0 && !node->is_directory) error = ENOTDIR;
    if (error != 0) return fail_errno(error, "list directory", path);
    std::vector<std::string> names;
    for (const auto& [name, child] : node->entries) names.push_back(name);
    return names;
  }

  Result<FileInfo> stat(const std::string& path) override {
    BITSNAP_TRY(check_path("stat", path));
    const std::lock_guard lock(state_->mutex);
    const auto [node, error] = state_->find(path_parts(path));
    if (error != 0) return FileInfo{};
    return FileInfo{.exists = true,
                    .is_directory = node->is_directory,
                    .is_regular = !node->is_directory,
                    .size_bytes = node->contents.size(),
                    .modified_ns = node->modified,
                    .file_id = node->id};
  }

  Result<void> check_writable(const std::string& path) override {
    BITSNAP_ASSIGN(const FileInfo info, stat(path));
    if (!info.is_directory) return fail_errno(info.exists ? ENOTDIR : ENOENT, "write to directory", path);
    return {};
  }

  Result<DirectorySync> sync_directory(const std::string& path) override {
    BITSNAP_TRY(check_path("sync directory", path));
    const std::lock_guard lock(state_->mutex);
    auto [node, error] = state_->find(path_parts(path));
    if (error == 0 && !node->is_directory) error = ENOTDIR;
    if (error != 0) return fail_errno(error, "sync directory", path);
    if (!state_->has_directory_sync) return DirectorySync::unsupported;
    state_->unsynced.sync(node);
    return DirectorySync::done;
  }

  Result<std::unique_ptr<FileLock>> lock(const std::string& path, LockKind kind) override {
    const std::lock_guard lock(state_->mutex);
    BITSNAP_ASSIGN(State::Place place, state_->place("lock", path));
    if (place.node == nullptr) {
      place.node = state_->make_node(false);
      state_->set_entry(place.directory, place.name, place.node);
    }
    if (place.node->is_directory) return fail_errno(EISDIR, "lock", path);
    const auto held = state_->locks.find(place.node.get());
    if (held == state_->locks.end()) {
      state_->locks[place.node.get()] = {kind, 1};
    } else if (kind == LockKind::exclusive || held->second.kind == LockKind::exclusive) {
      return fail(ErrorKind::busy, "lock " + path + ": another holder has it");
    } else {
      ++held->second.holders;
    }
    return std::make_unique<Lock>(state_, std::move(place.node));
  }

  // It has no links, so this is the same file system.
  std::shared_ptr<FileSystem> without_links(const std::string&) override {
    return {std::shared_ptr<FileSystem>(), this};
  }

 private:
  const std::shared_ptr<State> state_;
};

FakeFileSystem::FakeFileSystem() : FakeFileSystem(std::make_shared<State>()) {}
FakeFileSystem::FakeFileSystem(std::shared_ptr<State> state)
    : ForwardingFileSystem(std::make_shared<Calls>(state)), state_(std::move(state)) {}
FakeFileSystem::~FakeFileSystem() = default;

std::unique_ptr<FakeFileSystem> FakeFileSystem::copy() const {
  auto copied = std::make_unique<FakeFileSystem>();
  State& state = *copied->state_;
  const std::lock_guard lock(state_->mutex);
  fake::NodeCopies copies;
  state.nodes = state_->nodes;
  state.changes = state_->changes;
  state.root = copies.of(state_->root);
  state.unsynced = state_->unsynced.copy(copies);
  state.has_directory_sync = state_->has_directory_sync;
  state.has_links = state_->has_links;
  state.space_bytes = state_->space_bytes;
  return copied;
}

void FakeFileSystem::crash(CrashSpares spares) {
  const std::lock_guard lock(state_->mutex);
  state_->crash([spares](Node& node) {
    if (spares == CrashSpares::directory_entries || spares == CrashSpares::all) node.synced_entries = node.entries;
    if (spares == CrashSpares::file_contents || spares == CrashSpares::all) node.synced_contents = node.contents;
  });
}

void FakeFileSystem::crash_at_random(std::uint64_t seed) {
  const std::lock_guard lock(state_->mutex);
  fake::SeededRandom random(seed);
  state_->unsynced.survive(random);
  state_->crash([&random](Node& node) { lose_contents(node, random); });
}

void FakeFileSystem::refuse_directory_sync() {
  const std::lock_guard lock(state_->mutex);
  state_->has_directory_sync = false;
}

void FakeFileSystem::refuse_links() {
  const std::lock_guard lock(state_->mutex);
  state_->has_links = false;
}

void FakeFileSystem::limit_space(std::uint64_t size_bytes) {
  const std::lock_guard lock(state_->mutex);
  state_->space_bytes = size_bytes;
}

std::vector<std::string> FakeFileSystem::all_files() const {
  const std::lock_guard lock(state_->mutex);
  std::vector<std::string> files;
  fake::list_files(*state_->root, "", files);
  std::sort(files.begin(), files.end());
  return files;
}

std::vector<FakeFileSystem::DiskName> FakeFileSystem::all_names() const {
  const std::lock_guard lock(state_->mutex);
  return fake::list_names(*state_->root);
}

void FakeFileSystem::plant(const std::string& path, ConstByteSpan contents) {
  const std::lock_guard lock(state_->mutex);
  std::shared_ptr<Node> node = state_->root;
  const std::vector<std::string> parts = path_parts(path);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const bool is_file = i + 1 == parts.size();
    std::shared_ptr<Node>& entry = node->entries[parts[i]];
    if (entry == nullptr || is_file) {
      entry = state_->make_node(!is_file);
      node->modified = ++state_->changes;
    }
    node->synced_entries[parts[i]] = entry;
    state_->unsynced.forget(*node, parts[i]);
    node = entry;
  }
  node->contents.assign(contents.begin(), contents.end());
  node->synced_contents = node->contents;
}

}  // namespace bitsnap::os
