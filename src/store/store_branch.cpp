// Making, listing and removing branches. A branch is built as a store of its own in a directory that no reader looks
// at, and appears when that directory gets its name.
#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "base/try.hpp"
#include "os/random.hpp"
#include "store/branch_directory.hpp"
#include "store/store_impl.hpp"
#include "store/stored_files.hpp"

namespace bitsnap {
namespace {

// Attempts, while writers of the store change what is linked.
constexpr int kBranchAttempts = 8;

using store::StoredFiles;

// Counts each file once, whatever number of names it has.
void count_bytes(Branch& branch, const StoredFiles& files, const std::set<std::uint64_t>& shared) {
  std::set<std::uint64_t> counted;
  for (const auto& [path, info] : files) {
    if (!counted.insert(info.file_id).second) continue;
    branch.stored_bytes += info.size_bytes;
    if (!shared.contains(info.file_id)) branch.own_bytes += info.size_bytes;
  }
}

}  // namespace

// Builds one branch. Writers of the parent may remove and replace what is linked meanwhile: then the records of the
// parent are others than those that were read, and the branch is built again.
class Store::Impl::Brancher {
 public:
  Brancher(const Impl& parent, const store::BranchDirectory& directory, std::string name, std::uint64_t step,
           const BranchOptions& options)
      : parent_(parent), directory_(directory), name_(std::move(name)), step_(step), options_(options) {}

  Result<Branch> run() {
    for (int attempt = 1;; ++attempt) {
      BITSNAP_TRY(directory_.discard_unfinished());
      Result<Branch> made = attempt_once();
      if (made || !store::is_damage(made.error())) return made;
      if (!has_changed()) return made;
      if (attempt == kBranchAttempts) {
        return fail(ErrorKind::busy, fmt::format("{}: step {} changes as often as a branch is made of it",
                                                 parent_.layout_.root(), step_));
      }
    }
  }

 private:
  Result<Branch> attempt_once() {
    BITSNAP_TRY(collect());
    BITSNAP_TRY(build());
    const bool has_later_bases = taken_.rbegin()->first > roots_.back();
    if (has_later_bases) BITSNAP_TRY(drop_later_bases());
    BITSNAP_TRY(check());
    Branch branch{.name = name_, .path = directory_.branch(name_).root(), .origin = origin()};
    branch.checkpoints = roots_.size();
    branch.newest = roots_.back();
    branch.copied_bytes = copied_bytes_;
    BITSNAP_ASSIGN(const StoredFiles files, store::list_stored_files(directory_.files(), directory_.unfinished()));
    count_bytes(branch, files, linked_);
    BITSNAP_TRY(directory_.publish(name_));
    return branch;
  }

  // Finds the checkpoints of the branch, and the steps whose files they need.
  Result<void> collect() {
    taken_.clear();
    roots_.clear();
    std::vector<std::uint64_t> wanted = {step_};
    if (options_.with_later) {
      BITSNAP_ASSIGN(const std::vector<std::uint64_t> steps, parent_.directories_.steps());
      wanted.insert(wanted.end(), std::ranges::upper_bound(steps, step_), steps.end());
    }
    for (const std::uint64_t step : wanted) {
      auto record = store::read_commit_record(directory_.files(), parent_.layout_, step);
      if (!record && record.error().kind() == ErrorKind::not_found) {
        if (step == step_) return tl::unexpected(parent_.directories_.not_found(step));
        continue;  // a writer has removed it
      }
      if (!record) return tl::unexpected(std::move(record).error());
      if (record->damaged_tensors > 0) {
        return fail(ErrorKind::invalid_argument, fmt::format("{}: step {} is kept as damaged, so no branch can have it",
                                                             parent_.layout_.root(), step));
      }
      taken_.emplace(step, *std::move(record));
      roots_.push_back(step);
    }
    std::vector<std::uint64_t> open = roots_;
    std::set<std::uint64_t> followed(roots_.begin(), roots_.end());
    while (!open.empty()) {
      const store::CommitRecord& record = taken_.at(open.back());
      open.pop_back();
      for (const store::ShardFile& file : record.shards) {
        for (const store::StepReference& reference : file.references) {
          if (!taken_.contains(reference.step)) {
            BITSNAP_ASSIGN(auto needed, parent_.reader_->record(reference.step));
            taken_.emplace(reference.step, std::move(needed));
          }
          // Standalone chunks need nothing else.
          if (!reference.standalone && followed.insert(reference.step).second) open.push_back(reference.step);
        }
      }
    }
    return {};
  }

  [[nodiscard]] BranchOrigin origin() const { return {parent_.run_.id, directory_.own_name(), step_}; }

  Result<void> build() {
    os::FileSystem& files = directory_.files();
    const store::RunLayout layout = directory_.unfinished();
    linked_.clear();
    copied_bytes_ = 0;
    BITSNAP_TRY(files.create_directory(layout.root()));
    BITSNAP_TRY(files.create_directory(layout.checkpoints()));
    store::StepDirectories steps(files, layout);
    for (const auto& [step, record] : taken_) {
      BITSNAP_TRY(steps.create(step));
      for (std::size_t number = 0; number < record.file_count(); ++number) {
        const std::string& name = record.file(number).file;
        BITSNAP_TRY(take_file(parent_.layout_.step_file(step, name), layout.step_file(step, name)));
      }
      // Also syncs the names of the files.
      const bool is_retired = !std::ranges::binary_search(roots_, step);
      BITSNAP_TRY(store::replace_commit_record(files, layout, record, is_retired));
    }
    BITSNAP_TRY(steps.sync_checkpoints());
    store::LabelRecord kept;
    const auto labels = parent_.labels_.all();
    if (!labels && !store::is_damage(labels.error())) return tl::unexpected(labels.error());
    if (labels) {  // otherwise their record is damaged, and there are none
      for (const StepLabel& label : *labels) {
        if (std::ranges::binary_search(roots_, label.step)) kept.set({label.label, label.step, {}});
      }
    }
    if (!kept.labels.empty()) BITSNAP_TRY(store::write_label_record(files, layout, kept));
    store::RunRecord run = parent_.run_;
    run.id = SnapshotId{os::random_u64(), os::random_u64()}.to_hex();
    run.origin = {parent_.run_.id, directory_.own_name(), step_};
    BITSNAP_TRY(store::write_run_record(files, layout.run_record(), run, false));
    return {};
  }

  Result<void> take_file(const std::string& from, const std::string& to) {
    os::FileSystem& files = directory_.files();
    Result<void> linked = files.link(from, to);
    if (!linked && linked.error().kind() == ErrorKind::not_found) return linked;
    if (!linked) {
      // Each file system without hard links has its own error for that. A copy has errors of its own.
      static_cast<void>(files.remove(to));
      BITSNAP_TRY(store::copy_file(files, from, files, to));
    }
    BITSNAP_ASSIGN(const os::FileInfo info, files.stat(to));
    if (linked) {
      linked_.insert(info.file_id);
    } else {
      copied_bytes_ += info.size_bytes;
    }
    return {};
  }

  // Some checkpoints were coded against steps above all of them. Removes these from the unfinished branch as a rollback
  // does, which codes the checkpoints again: the next save could not be above them.
  Result<void> drop_later_bases() {
    StoreOptions writing;
    writing.access = StoreAccess::write;
    writing.create = false;
    writing.keep_base_bytes = 0;
    writing.limits = parent_.options_.limits;
    BITSNAP_ASSIGN(const auto branch, open(parent_.all_files_, directory_.unfinished().root(), writing));
    BITSNAP_TRY(branch->rollback(roots_.back(), options_.run));
    Retention all;
    all.keep = roots_;
    BITSNAP_TRY(branch->prune(all, {.reencode = Reencode::never, .run = options_.run}));
    return {};
  }

  // Opens every file of the checkpoints with everything that it refers to. This finds damage, and files that a writer
  // of the parent has replaced between reading the record and linking.
  Result<void> check() {
    store::CheckpointReader reader(directory_.files(), directory_.unfinished(), parent_.options_.limits);
    for (const std::uint64_t step : roots_) {
      const std::size_t shards = taken_.at(step).shards.size();
      for (std::uint32_t shard = 0; shard < shards; ++shard) BITSNAP_TRY(checked(reader.open(step, shard), step));
      BITSNAP_TRY(checked(reader.open_files(step), step));
    }
    return {};
  }

  Result<void> checked(const Result<std::shared_ptr<const Snapshot>>& opened, std::uint64_t step) const {
    if (opened) return {};
    return fail(opened.error().kind(), fmt::format("{}: step {} is damaged, so no branch can have it; `bitsnap repair` "
                                                   "says what can be read: {}",
                                                   parent_.layout_.root(), step, opened.error().message()));
  }

  // Whether the records of the parent are others than those that were read.
  [[nodiscard]] bool has_changed() const {
    return std::ranges::any_of(taken_, [&](const auto& entry) {
      const auto now = std::ranges::binary_search(roots_, entry.first)
                           ? store::read_commit_record(directory_.files(), parent_.layout_, entry.first)
                           : parent_.reader_->record(entry.first);
      return !now || *now != entry.second;
    });
  }

  const Impl& parent_;
  const store::BranchDirectory& directory_;
  const std::string name_;
  const std::uint64_t step_;
  const BranchOptions& options_;
  std::vector<std::uint64_t> roots_;                    // the checkpoints of the branch, ascending
  std::map<std::uint64_t, store::CommitRecord> taken_;  // these, and the steps that they need
  std::set<std::uint64_t> linked_;                      // ids of files
  std::uint64_t copied_bytes_ = 0;
};

Result<Branch> Store::Impl::make_branch(const std::string& name, std::uint64_t step,
                                        const BranchOptions& options) const {
  BITSNAP_ASSIGN(const auto directory, store::BranchDirectory::of(all_files_, layout_.root()));
  BITSNAP_TRY(store::check_branch_name(name));
  BITSNAP_ASSIGN(const store::StepEntry entry, directories_.look(step));
  if (entry.state != store::StepState::committed) return tl::unexpected(directories_.not_found(step));
  BITSNAP_ASSIGN(const auto lock, directory.begin(options_));
  BITSNAP_TRY(directory.check_free(name));
  Brancher brancher(*this, directory, name, step, options);
  Result<Branch> made = brancher.run();
  // A file system that fails keeps this, and the next process that takes the lock removes it.
  if (!made) static_cast<void>(directory.discard_unfinished());
  return made;
}

Result<std::vector<Branch>> Store::Impl::branches() const {
  BITSNAP_ASSIGN(const auto directory, store::BranchDirectory::of(all_files_, layout_.root()));
  BITSNAP_ASSIGN(const std::vector<std::string> names, directory.names());
  os::FileSystem& files = directory.files();
  std::vector<Branch> branches;
  std::vector<StoredFiles> stored(names.size());
  for (const std::string& name : names) {
    const store::RunLayout layout = directory.branch(name);
    Branch& branch = branches.emplace_back(Branch{.name = name, .path = layout.root()});
    const auto run = store::read_run_record(files, layout.run_record());
    if (!run) branch.damage = run.error();
    if (run && run->origin) branch.origin = {run->origin->id, run->origin->branch, run->origin->step};
    const auto steps = store::StepDirectories(files, layout).steps();
    auto listed = store::list_stored_files(files, layout);
    if (!steps || !listed) {
      branch.damage = steps ? listed.error() : steps.error();
      continue;
    }
    branch.checkpoints = steps->size();
    if (!steps->empty()) branch.newest = steps->back();
    stored[branches.size() - 1] = *std::move(listed);
  }
  // Stores share a file under the same name only.
  for (std::size_t i = 0; i < branches.size(); ++i) {
    std::set<std::uint64_t> shared;
    for (const auto& [path, info] : stored[i]) {
      BITSNAP_ASSIGN(const os::FileInfo in_run, files.stat(os::join_path(directory.run().checkpoints(), path)));
      bool is_shared = in_run.exists && in_run.file_id == info.file_id;
      for (std::size_t other = 0; other < stored.size() && !is_shared; ++other) {
        const auto found = stored[other].find(path);
        is_shared = other != i && found != stored[other].end() && found->second.file_id == info.file_id;
      }
      if (is_shared) shared.insert(info.file_id);
    }
    count_bytes(branches[i], stored[i], shared);
  }
  return branches;
}

Result<void> Store::Impl::remove_branch(const std::string& name) const {
  BITSNAP_ASSIGN(const auto directory, store::BranchDirectory::of(all_files_, layout_.root()));
  BITSNAP_ASSIGN(const os::FileInfo there, directory.files().stat(directory.run().branches()));
  if (!there.exists) return directory.remove(name);  // which fails; no directory is made for the lock
  BITSNAP_ASSIGN(const auto lock, directory.begin(options_));
  return directory.remove(name);
}

}  // namespace bitsnap
