// CheckpointReader: opens a file after the files that it refers to.
#include "store/checkpoint_reader.hpp"

#include <algorithm>
#include <iterator>
#include <set>
#include <vector>

#include <fmt/format.h>

#include "base/try.hpp"
#include "restore/open_snapshot.hpp"

namespace bitsnap::store {
namespace {

// Attempts to open a shard: in all, if its record keeps changing, which writers do less often than this; and with the
// same record, before the shard counts as damaged.
constexpr int kOpenAttempts = 16;
constexpr int kUnchangedAttempts = 4;
// Limit for the length of a path of references. A chain has at most kLongestChain files, and rewriting may add a few.
constexpr std::uint32_t kMaxNesting = 1024;

// Whether the error may come from a file that was removed or written again. Some network file systems report that as
// io.
bool may_follow_from_change(const Error& error) { return is_damage(error) || error.kind() == ErrorKind::io; }

// The snapshots that one file refers to; they are opened before it.
class OpenedBases final : public BaseProvider {
 public:
  void add(const SnapshotId& id, std::shared_ptr<const Snapshot> snapshot) {
    snapshots_.insert_or_assign(id, std::move(snapshot));
  }
  // find() returns the error instead of the snapshot.
  void note_missing(const SnapshotId& id, Error error) { missing_.insert_or_assign(id, std::move(error)); }

  Result<std::shared_ptr<const Base>> find(const SnapshotId& id) const override {
    if (const auto found = snapshots_.find(id); found != snapshots_.end()) return found->second;
    if (const auto missing = missing_.find(id); missing != missing_.end()) return tl::unexpected(missing->second);
    return fail(ErrorKind::corrupt,
                fmt::format("base {} is not among the references in the commit record", id.to_hex()));
  }

 private:
  std::map<SnapshotId, std::shared_ptr<const Snapshot>> snapshots_;
  std::map<SnapshotId, Error> missing_;
};

}  // namespace

void CheckpointReader::assume(CommitRecord record) {
  const std::uint64_t step = record.step;
  assumed_.insert_or_assign(step, std::move(record));
}

Result<CommitRecord> CheckpointReader::record(std::uint64_t step) const {
  if (const auto assumed = assumed_.find(step); assumed != assumed_.end()) return assumed->second;
  // The step may have been retired between the first two reads.
  for (const bool retired : {false, true, false}) {
    auto record = read_commit_record(file_system_, layout_, step, retired);
    if (record || record.error().kind() != ErrorKind::not_found) return record;
  }
  return fail(ErrorKind::not_found, fmt::format("{}: step {} not found", layout_.root(), step));
}

Result<std::shared_ptr<const Snapshot>> CheckpointReader::open(std::uint64_t step, std::uint32_t shard, bool partial) {
  std::size_t shards = 0;
  const auto pick = [&](const CommitRecord& record) -> const ShardFile* {
    shards = record.shards.size();
    return shard < shards ? &record.shards[shard] : nullptr;
  };
  auto opened = open_picked(step, pick, partial);
  if (!opened || *opened != nullptr) return opened;
  if (shards == 1) {
    return fail(ErrorKind::not_found,
                fmt::format("{}: there is no shard {}: step {} has one shard, number 0, which need not be named",
                            layout_.root(), shard, step));
  }
  return fail(ErrorKind::not_found, fmt::format("{}: shard must be below {}, the number of shards of step {}, got {}",
                                                layout_.root(), shards, step, shard));
}

Result<std::shared_ptr<const Snapshot>> CheckpointReader::open_files(std::uint64_t step) {
  return open_picked(step, [](const CommitRecord& record) { return record.files ? &*record.files : nullptr; });
}

Result<std::shared_ptr<const Snapshot>> CheckpointReader::open_picked(std::uint64_t step, Pick pick, bool partial) {
  BITSNAP_ASSIGN(CommitRecord record, read_commit_record(file_system_, layout_, step));
  int unchanged = 0;
  for (int attempt = 1; attempt <= kOpenAttempts; ++attempt) {
    const ShardFile* const file = pick(record);
    if (file == nullptr) return nullptr;
    auto opened = open_file(step, *file);
    if (opened || !may_follow_from_change(opened.error())) return opened;
    // A writer may have changed the step since its record was read. Only if the record is still the same, a file is
    // missing or damaged.
    auto again = read_commit_record(file_system_, layout_, step);
    if (!again && again.error().kind() == ErrorKind::not_found) {
      return fail(ErrorKind::not_found,
                  fmt::format("{}: step {} was removed while it was being opened", layout_.root(), step));
    }
    if (!again) return tl::unexpected(std::move(again).error());
    if (*again != record) {
      record = std::move(*again);
      continue;
    }
    // A file that this one refers to may have been rewritten: then the record of this step is unchanged.
    if (is_damage(opened.error()) && ++unchanged < kUnchangedAttempts) continue;
    if (partial) {
      // No writer is at work, so what cannot be opened is damaged.
      if (auto some = open_partially(step, *pick(record))) return some;
    }
    if (opened.error().kind() != ErrorKind::not_found) return opened;
    return fail(ErrorKind::corrupt, opened.error().message() + ", but the commit record names it");
  }
  return fail(ErrorKind::busy,
              fmt::format("{}: step {} changed {} times while it was being opened; read it again later", layout_.root(),
                          step, kOpenAttempts));
}

Result<std::shared_ptr<const Snapshot>> CheckpointReader::open_with(std::uint64_t step, const ShardFile& file,
                                                                    Extent extent, const Opening* outer,
                                                                    std::unique_ptr<os::RandomAccessFile> opened) {
  const std::string path = layout_.step_file(step, file.file);
  {
    const std::lock_guard lock(mutex_);
    if (const auto known = opened_.find({path, extent}); known != opened_.end()) {
      if (std::shared_ptr<const Snapshot> snapshot = known->second.lock();
          snapshot != nullptr && snapshot->id() == file.id) {
        return snapshot;
      }
    }
  }
  OpenOptions options;
  options.limits = limits_;
  if (extent == Extent::alone) {
    options.bases = std::make_shared<OpenedBases>();
  } else {
    BITSNAP_ASSIGN(options.bases, open_references({step, file, outer}, extent));
  }
  if (opened == nullptr) {
    BITSNAP_ASSIGN(opened, cache_ != nullptr ? cache_->open_file(file_system_, path, pattern_)
                                             : file_system_.open(path, pattern_));
  }
  if (opened->size_bytes() != file.bytes) {
    return fail(opened->size_bytes() < file.bytes ? ErrorKind::truncated : ErrorKind::corrupt,
                fmt::format("{}: found {} bytes, the commit record says {}", path, opened->size_bytes(), file.bytes));
  }
  BITSNAP_ASSIGN(std::shared_ptr<const Snapshot> snapshot,
                 restore::open_snapshot(std::move(opened), options, file_system_));
  if (snapshot->id() != file.id) {
    return fail(ErrorKind::corrupt, fmt::format("{}: holds snapshot {}, the commit record says {}", path,
                                                snapshot->id().to_hex(), file.id.to_hex()));
  }
  remember(path, extent, snapshot);
  return snapshot;
}

Result<std::shared_ptr<const BaseProvider>> CheckpointReader::open_references(const Opening& opening, Extent extent) {
  const auto& [step, file, outer] = opening;
  auto bases = std::make_shared<OpenedBases>();
  std::uint32_t nesting = 0;
  for (const Opening* above = outer; above != nullptr; above = above->outer) {
    if (above->step == step && above->file.file == file.file) {
      return fail(ErrorKind::corrupt, fmt::format("{} refers to itself", layout_.step_file(step, file.file)));
    }
    if (++nesting < kMaxNesting) continue;
    return fail(ErrorKind::resource_exhausted, fmt::format("{}: step {} needs a chain of more than {} checkpoints",
                                                           layout_.root(), step, kMaxNesting));
  }
  for (const StepReference& reference : file.references) {
    const auto open_one = [&]() -> Result<std::shared_ptr<const Snapshot>> {
      BITSNAP_ASSIGN(const CommitRecord record, this->record(reference.step));
      if (reference.shard >= record.shards.size() || record.shards[reference.shard].id != reference.id) {
        return fail(ErrorKind::corrupt, fmt::format("shard {} of step {} is not snapshot {}", reference.shard,
                                                    reference.step, reference.id.to_hex()));
      }
      const ShardFile& target = record.shards[reference.shard];
      // It may have been rewritten against a later step since the record was read that says `standalone`.
      const bool is_rewritten = std::ranges::any_of(
          target.references, [&](const StepReference& other) { return other.step > reference.step; });
      const bool is_alone = reference.standalone && !is_rewritten;
      return open_with(reference.step, target, is_alone ? Extent::alone : extent, &opening, nullptr);
    };
    auto opened = open_one();
    if (!opened) {
      Error error = std::move(opened).error().within(
          fmt::format("{}, which refers to step {}", layout_.step_file(step, file.file), reference.step));
      if (extent != Extent::partial || !may_follow_from_change(error)) return tl::unexpected(std::move(error));
      if (error.kind() == ErrorKind::not_found) {
        error = Error(ErrorKind::corrupt, error.message() + ", but a commit record names it");
      }
      bases->note_missing(reference.id, std::move(error));
      continue;
    }
    bases->add(reference.id, std::move(*opened));
  }
  return bases;
}

void CheckpointReader::remember(const std::string& path, Extent extent,
                                const std::shared_ptr<const Snapshot>& snapshot) {
  const std::lock_guard lock(mutex_);
  if (opened_.size() >= sweep_at_) {
    std::erase_if(opened_, [](const auto& entry) { return entry.second.expired(); });
    sweep_at_ = std::max<std::size_t>(64, 2 * opened_.size());
  }
  opened_.insert_or_assign({path, extent}, snapshot);
}

Result<void> CheckpointReader::check_references(std::uint64_t step, const ShardFile& file) const {
  std::set<std::pair<std::uint64_t, std::uint32_t>> checked;
  std::vector<StepReference> pending = file.references;
  while (!pending.empty()) {
    const StepReference reference = pending.back();
    pending.pop_back();
    const auto found = this->record(reference.step);
    if (!found && !is_damage(found.error())) return tl::unexpected(found.error());
    if (!found || reference.shard >= found->shards.size() || found->shards[reference.shard].id != reference.id) {
      return fail(
          ErrorKind::corrupt,
          fmt::format("{}, which needs shard {} of step {}: {}", layout_.step_file(step, file.file), reference.shard,
                      reference.step, found ? "the shard is another snapshot now" : found.error().message()));
    }
    if (reference.standalone || !checked.emplace(reference.step, reference.shard).second) continue;
    std::ranges::copy(found->shards[reference.shard].references, std::back_inserter(pending));
  }
  return {};
}

Result<StepReference> CheckpointReader::reference_to(const save::Reference& used) const {
  const std::string& path = used.name;
  const std::optional<std::uint64_t> step = step_from_name(os::file_name(os::parent_directory(path)));
  if (!step) return fail(ErrorKind::internal, fmt::format("{}: not a file of the store {}", path, layout_.root()));
  BITSNAP_ASSIGN(const CommitRecord record, this->record(*step));
  const auto file = std::ranges::find(record.shards, os::file_name(path), &ShardFile::file);
  if (file == record.shards.end()) {
    return fail(ErrorKind::corrupt, fmt::format("{}: not named by the record of step {}", path, *step));
  }
  if (file->id != used.id) {
    return fail(ErrorKind::corrupt,
                fmt::format("{}: expected snapshot {}, found {}", path, used.id.to_hex(), file->id.to_hex()));
  }
  return StepReference{used.id, *step, static_cast<std::uint32_t>(file - record.shards.begin()), used.standalone};
}

}  // namespace bitsnap::store
