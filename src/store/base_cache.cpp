// BaseCache: what it holds, what a snapshot depends on, and what is dropped.
#include "store/base_cache.hpp"

#include <algorithm>
#include <ranges>
#include <tuple>

#include <fmt/format.h>

#include "base/no_throw.hpp"
#include "base/try.hpp"
#include "os/process.hpp"
#include "restore/open_snapshot.hpp"
#include "store/published_file.hpp"

namespace bitsnap::store {
namespace {

// The snapshots that one snapshot depends on; they are opened before it.
class OpenedChain final : public BaseProvider {
 public:
  void add(std::shared_ptr<const Snapshot> snapshot) { snapshots_.push_back(std::move(snapshot)); }

  Result<std::shared_ptr<const Base>> find(const SnapshotId& id) const override {
    for (const auto& snapshot : snapshots_) {
      if (snapshot->id() == id) return snapshot;
    }
    return fail(ErrorKind::corrupt, fmt::format("base {} is not among the cached bases of the snapshot", id.to_hex()));
  }

 private:
  std::vector<std::shared_ptr<const Snapshot>> snapshots_;
};

}  // namespace

BaseCache::Room::~Room() {
  const std::lock_guard lock(cache_.mutex_);
  cache_.writing_bytes_ = 0;
}

Result<void> BaseCache::Room::take(std::uint64_t bytes) {
  const std::lock_guard lock(cache_.mutex_);
  cache_.writing_bytes_ = bytes;
  const auto is_too_much = [&] { return cache_.used_bytes() + bytes > cache_.limits_.bytes; };
  while (is_too_much()) {
    if (cache_.drop_one()) continue;
    if (may_exceed_ && bytes <= cache_.limits_.bytes) break;
    return fail(
        ErrorKind::resource_exhausted,
        fmt::format("the compressed state needs {} bytes or more, but the budget leaves {} bytes for snapshots, "
                    "of which {} are in use",
                    bytes, cache_.limits_.bytes, cache_.used_bytes()));
  }
  if (cache_.limits_.free_bytes == 0 || bytes <= checked_bytes_) return {};
  // The file grows by less than a piece until the system is asked again.
  const std::uint64_t needed = bytes - checked_bytes_ + Blob::kPieceBytes + cache_.limits_.free_bytes;
  for (;;) {
    const auto available = cache_.probe_();
    if (!available || available->available_bytes >= needed + available->free_bytes()) break;
    if (cache_.drop_one()) continue;
    return fail(
        ErrorKind::resource_exhausted,
        fmt::format("the compressed state needs {} bytes or more, but only {} bytes of memory are available ({}), "
                    "of which {} stay free",
                    bytes, available->available_bytes, available->limit,
                    cache_.limits_.free_bytes + available->free_bytes()));
  }
  checked_bytes_ = bytes + Blob::kPieceBytes;
  return {};
}

void BaseCache::Room::finish(const std::shared_ptr<const Blob>& blob) {
  const std::lock_guard lock(cache_.mutex_);
  cache_.note_used(blob);
  cache_.writing_bytes_ = 0;
}

void BaseCache::give_back(std::optional<std::uint64_t> step) {
  const std::lock_guard lock(mutex_);
  std::optional<SnapshotId> wanted;
  for (const Record& record : records_) {
    if (record.step == step) wanted = record.id;
  }
  while (drop_one(wanted)) continue;
}

void BaseCache::set_restorable(const std::optional<SnapshotId>& id) {
  const std::lock_guard lock(mutex_);
  restorable_ = id;
}

void BaseCache::forget_since(std::uint64_t step) {
  const std::lock_guard lock(mutex_);
  while (!records_.empty() && records_.back().step >= step) records_.pop_back();
  drop_unneeded();
}

bool BaseCache::put(CachedSnapshot snapshot) {
  const std::lock_guard lock(mutex_);
  while (!records_.empty() && records_.back().step >= snapshot.step) records_.pop_back();
  note_used(snapshot.blob);
  const SnapshotId id = snapshot.id;
  records_.push_back({snapshot.step, id, std::move(snapshot.attempt), false});
  // If a snapshot with this content is whole in memory, it stays: the new one may even be coded against it.
  if (!order(id, nullptr)) {
    entries_.insert_or_assign(id, Entry{.blob = std::move(snapshot.blob),
                                        .needs = std::move(snapshot.needs),
                                        .name = fmt::format("{:010}-in-memory.bsnap", snapshot.step),
                                        .raw_bytes = snapshot.raw_bytes,
                                        .age = ++ages_});
  }
  // Published is the step of an earlier save with this content, which may be pruned.
  entries_.at(id).files = nullptr;
  entries_.at(id).persisted |= snapshot.persisted;
  trim();
  return order(id, nullptr).has_value();
}

void BaseCache::set_limits(const Limits& limits) {
  const std::lock_guard lock(mutex_);
  limits_ = limits;
  trim();
  const auto is_too_large = [&](const std::shared_ptr<os::Pages>& memory) {
    return memory != nullptr && memory->get_deleter().size_bytes > limits_.decoded_bytes / 2;
  };
  if (is_too_large(previous_memory_)) drop_previous();
  if (is_too_large(base_memory_)) {
    base_state_ = nullptr;
    base_memory_ = nullptr;
  }
}

BaseCache::Limits BaseCache::limits() const {
  const std::lock_guard lock(mutex_);
  return limits_;
}

void BaseCache::note_published(const std::shared_ptr<os::FileSystem>& files, const std::string& path,
                               const Blob& blob) {
  const Result<os::FileInfo> file = files->stat(path);
  if (!file || !file->is_regular || file->size_bytes != blob.size_bytes()) return;
  const std::lock_guard lock(mutex_);
  for (auto& [id, entry] : entries_) {
    if (entry.blob.get() != &blob) continue;
    entry.files = files;
    entry.path = path;
    entry.file = *file;
  }
}

void BaseCache::note_committed(std::uint64_t step) {
  const std::lock_guard lock(mutex_);
  const auto record = std::ranges::find(records_, step, &Record::step);
  if (record != records_.end()) record->is_committed = true;
}

std::unique_ptr<os::RandomAccessFile> BaseCache::file_of(const Entry& entry, std::string name) const {
  if (entry.files == nullptr) return blob_file(entry.blob, std::move(name));
  return std::make_unique<PublishedFile>(entry.blob, std::move(name), entry.files, entry.path, entry.file);
}

Result<std::unique_ptr<os::RandomAccessFile>> BaseCache::open_file(os::FileSystem& files, const std::string& path,
                                                                   os::AccessPattern pattern) const {
  Entry published;
  {
    const std::lock_guard lock(mutex_);
    const auto found = std::ranges::find_if(entries_, [&](const auto& each) { return each.second.path == path; });
    if (found != entries_.end()) published = found->second;
  }
  if (published.blob != nullptr) {
    // The disk has the last word: another process may have removed or replaced the file.
    const Result<os::FileInfo> file = files.stat(path);
    if (file && is_same_file(*file, published.file)) return file_of(published, path);
  }
  return files.open(path, pattern);
}

void BaseCache::set_decoded(const SnapshotId& id, const std::shared_ptr<const restore::DecodedState>& decoded) {
  const std::lock_guard lock(mutex_);
  refer_to_decoded(id, decoded);
}

void BaseCache::refer_to_decoded(const SnapshotId& id, const std::shared_ptr<const restore::DecodedState>& decoded) {
  std::erase_if(decoded_, [](const auto& each) { return each.second.expired(); });
  decoded_.insert_or_assign(id, decoded);
}

bool BaseCache::attach_decoded(const Snapshot& snapshot) const {
  std::shared_ptr<const restore::DecodedState> decoded;
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = decoded_.find(snapshot.id()); found != decoded_.end()) decoded = found->second.lock();
  }
  if (decoded == nullptr) return false;
  restore::attach_decoded(snapshot, std::move(decoded));
  return true;
}

std::unique_ptr<StateKeeper> BaseCache::make_keeper(bool at_once) {
  const std::lock_guard lock(mutex_);
  if (limits_.decoded_bytes == 0 || (!has_saved_ && !at_once)) return nullptr;
  if (saves_without_ > 0) {
    --saves_without_;
    return nullptr;
  }
  std::shared_ptr<os::Pages> spare = std::move(previous_memory_);
  drop_previous();
  return std::make_unique<StateKeeper>(limits_.decoded_bytes / 2, std::move(spare), probe_);
}

void BaseCache::drop_previous() {
  if (previous_state_ != nullptr) previous_state_->release();
  previous_state_ = nullptr;
  previous_memory_ = nullptr;
}

void BaseCache::keep_base(const Snapshot& snapshot, StateKeeper* keeper) {
  KeptState kept;
  if (keeper != nullptr) kept = keeper->release();
  const std::lock_guard lock(mutex_);
  if (base_state_ != nullptr) {
    const bool is_taken = 4 * base_state_->mismatches() > base_state_->found();
    if (is_taken && kept_by_ == os::process_id()) saves_without_ = kSavesWithout;
  }
  drop_previous();
  if (kept.is_empty()) {
    if (base_state_ != nullptr) base_state_->release();
    base_state_ = nullptr;
    base_memory_ = nullptr;
  } else {
    previous_state_ = std::move(base_state_);
    previous_memory_ = std::exchange(base_memory_, kept.memory);
    base_state_ = std::make_shared<restore::DecodedState>(snapshot, kept.streams, std::move(kept.memory));
    refer_to_decoded(snapshot.id(), base_state_);
  }
  has_saved_ = true;
  kept_by_ = os::process_id();
}

std::uint64_t BaseCache::kept_bytes() const {
  const std::lock_guard lock(mutex_);
  return base_memory_ == nullptr ? 0 : base_memory_->get_deleter().size_bytes;
}

bool BaseCache::has_saved() const {
  const std::lock_guard lock(mutex_);
  return has_saved_;
}

std::optional<BaseCache::Newest> BaseCache::newest() const {
  const std::lock_guard lock(mutex_);
  if (records_.empty()) return std::nullopt;
  const Record& newest = records_.back();
  const bool is_whole = order(newest.id, nullptr).has_value();
  return Newest{newest.step, newest.id, is_whole, is_whole ? links_of(newest.id) : 0};
}

std::vector<std::pair<std::uint64_t, std::string>> BaseCache::attempts() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::pair<std::uint64_t, std::string>> attempts;
  for (const Record& record : records_) attempts.emplace_back(record.step, record.attempt);
  return attempts;
}

std::optional<std::vector<BaseCache::Held>> BaseCache::chain(std::uint64_t step) const {
  const std::lock_guard lock(mutex_);
  const auto record = std::ranges::find(records_, step, &Record::step);
  if (record == records_.end()) return std::nullopt;
  const auto ids = order(record->id, nullptr);
  if (!ids) return std::nullopt;
  std::vector<Held> chain;
  for (const SnapshotId& id : *ids) chain.push_back({id, entries_.at(id).blob, entries_.at(id).raw_bytes});
  return chain;
}

Result<std::shared_ptr<const Snapshot>> BaseCache::open(const SnapshotId& id) const {
  return no_throw("snapshot in memory", [&]() -> Result<std::shared_ptr<const Snapshot>> {
    std::vector<std::pair<SnapshotId, Entry>> needed;
    {
      const std::lock_guard lock(mutex_);
      SnapshotId missing = id;
      const auto ids = order(id, &missing);
      if (!ids) {
        std::string message = fmt::format("snapshot {} is not in memory", missing.to_hex());
        if (missing != id) message += fmt::format(", but snapshot {} needs it", id.to_hex());
        return fail(ErrorKind::not_found, std::move(message));
      }
      for (const SnapshotId& one : *ids) needed.emplace_back(one, entries_.at(one));
    }
    // Opens each snapshot after those that it depends on. The lock is not held, because opening takes time.
    std::map<SnapshotId, std::shared_ptr<const Snapshot>> opened;
    for (const auto& [one, entry] : std::views::reverse(needed)) {
      std::shared_ptr<const Snapshot> snapshot = entry.opened.lock();
      if (snapshot == nullptr) {
        const auto bases = std::make_shared<OpenedChain>();
        for (const SnapshotId& base : entry.needs) bases->add(opened.at(base));
        OpenOptions options;
        options.limits = decode_limits_;
        options.bases = bases;
        BITSNAP_ASSIGN(snapshot, restore::open_snapshot(file_of(entry, entry.name), options, os::real_file_system()));
        if (snapshot->id() != one) {
          return fail(ErrorKind::corrupt,
                      fmt::format("{}: holds {}, expected {}", entry.name, snapshot->id().to_hex(), one.to_hex()));
        }
      }
      opened.emplace(one, std::move(snapshot));
    }
    {
      const std::lock_guard lock(mutex_);
      for (const auto& [one, entry] : needed) {
        const auto held = entries_.find(one);
        if (held != entries_.end() && held->second.blob == entry.blob) held->second.opened = opened.at(one);
      }
    }
    attach_decoded(*opened.at(id));
    return opened.at(id);
  });
}

std::uint64_t BaseCache::bytes() const {
  const std::lock_guard lock(mutex_);
  return held_bytes();
}

bool BaseCache::holds(const Blob& blob) const {
  const std::lock_guard lock(mutex_);
  return std::ranges::any_of(entries_, [&](const auto& entry) { return entry.second.blob.get() == &blob; });
}

std::optional<std::vector<SnapshotId>> BaseCache::order(const SnapshotId& id, SnapshotId* missing) const {
  // Depth first. A snapshot is left after everything that it depends on, so `left` is the wanted order backwards.
  std::vector<SnapshotId> left;
  std::map<SnapshotId, bool> is_left;  // false: entered, but not left yet
  struct Place {
    SnapshotId id;
    std::size_t next = 0;  // index of the next one of its needs
  };
  std::vector<Place> way;
  const auto enter = [&](const SnapshotId& one) {
    if (const auto known = is_left.find(one); known != is_left.end()) return known->second;
    if (!entries_.contains(one)) {
      if (missing != nullptr) *missing = one;
      return false;
    }
    is_left.emplace(one, false);
    way.push_back({one});
    return true;
  };
  if (!enter(id)) return std::nullopt;
  while (!way.empty()) {
    Place& place = way.back();
    const std::vector<SnapshotId>& needs = entries_.at(place.id).needs;
    if (place.next < needs.size()) {
      if (!enter(needs[place.next++])) return std::nullopt;
      continue;
    }
    is_left[place.id] = true;
    left.push_back(place.id);
    way.pop_back();
  }
  std::ranges::reverse(left);
  return left;
}

void BaseCache::reach(const SnapshotId& id, std::set<SnapshotId>& reached) const {
  std::vector<SnapshotId> pending = {id};
  while (!pending.empty()) {
    const SnapshotId one = pending.back();
    pending.pop_back();
    const auto found = entries_.find(one);
    if (found == entries_.end() || !reached.insert(one).second) continue;
    pending.insert(pending.end(), found->second.needs.begin(), found->second.needs.end());
  }
}

// Precondition: the snapshot is whole.
std::uint32_t BaseCache::links_of(const SnapshotId& id) const {
  std::map<SnapshotId, std::uint32_t> links;
  const std::vector<SnapshotId> ids = *order(id, nullptr);
  for (const SnapshotId& one : std::views::reverse(ids)) {
    const Entry& entry = entries_.at(one);
    std::uint32_t& own = links[one];
    if (entry.persisted) continue;
    for (const SnapshotId& base : entry.needs) own = std::max(own, links.at(base) + 1);
  }
  return links.at(id);
}

std::uint64_t BaseCache::held_bytes() const {
  std::uint64_t bytes = 0;
  for (const auto& [id, entry] : entries_) bytes += entry.blob->size_bytes();
  return bytes;
}

std::uint64_t BaseCache::used_bytes() {
  std::erase_if(used_, [](const auto& each) { return each.expired(); });
  std::uint64_t bytes = 0;
  for (const auto& each : used_) {
    if (const std::shared_ptr<const Blob> blob = each.lock()) bytes += blob->size_bytes();
  }
  return bytes;
}

void BaseCache::note_used(const std::shared_ptr<const Blob>& blob) {
  const auto is_it = [&](const auto& each) { return each.lock() == blob; };
  if (std::ranges::none_of(used_, is_it)) used_.push_back(blob);
}

bool BaseCache::drop_one(const std::optional<SnapshotId>& wanted) {
  if (records_.empty()) return false;
  const SnapshotId newest = records_.back().id;
  const auto found = entries_.find(newest);
  std::set<SnapshotId> kept;
  // A shard is published before its checkpoint is committed, so it may have to be restored from memory.
  const bool is_published = found != entries_.end() && found->second.files != nullptr &&
                            (records_.back().attempt.empty() || records_.back().is_committed);
  if (found != entries_.end() && !is_published && restorable_ != newest) reach(newest, kept);
  if (wanted) reach(*wanted, kept);
  const std::optional<SnapshotId> id = next_to_go(kept, true);
  if (!id) return false;
  drop_with_dependants(*id);
  drop_unneeded();
  return true;
}

void BaseCache::trim() {
  while (records_.size() > limits_.snapshots) records_.pop_front();
  drop_unneeded();
  while (held_bytes() > limits_.bytes) {
    drop_with_dependants(*next_to_go({}, false));
    drop_unneeded();
  }
}

void BaseCache::drop_unneeded() {
  std::set<SnapshotId> needed;
  for (const Record& record : records_) reach(record.id, needed);
  std::erase_if(entries_, [&](const auto& entry) { return !needed.contains(entry.first); });
}

// Drops the oldest snapshot that the newest does not need, then the oldest that it needs, and the newest last.
std::optional<SnapshotId> BaseCache::next_to_go(const std::set<SnapshotId>& kept, bool gives_memory_back) const {
  const SnapshotId newest = records_.back().id;
  std::set<SnapshotId> chain;
  reach(newest, chain);
  std::optional<SnapshotId> next;
  std::tuple<bool, bool, std::uint64_t> least;
  for (const auto& [id, entry] : entries_) {
    if (kept.contains(id) || (gives_memory_back && entry.blob.use_count() > 1)) continue;
    const std::tuple rank(id == newest, chain.contains(id), entry.age);
    if (next && rank >= least) continue;
    next = id;
    least = rank;
  }
  return next;
}

// The newest stays even if its dependency is dropped, because the store may have that on disk.
void BaseCache::drop_with_dependants(const SnapshotId& id) {
  const SnapshotId newest = records_.back().id;
  std::vector<SnapshotId> gone = {id};
  for (std::size_t i = 0; i < gone.size(); ++i) {
    entries_.erase(gone[i]);
    for (const auto& [other, entry] : entries_) {
      const bool depends = std::ranges::find(entry.needs, gone[i]) != entry.needs.end();
      if (depends && other != newest && std::ranges::find(gone, other) == gone.end()) gone.push_back(other);
    }
  }
  std::erase_if(records_, [&](const Record& record) { return !entries_.contains(record.id); });
}

}  // namespace bitsnap::store
