// Store: hands each public call on to Store::Impl, and turns exceptions into errors.
#include <utility>

#include "base/no_throw.hpp"
#include "base/try.hpp"
#include "store/home.hpp"
#include "store/store_impl.hpp"

namespace bitsnap {

namespace store {

Result<std::unique_ptr<Store>> open_store(os::FileSystem& file_system, const std::string& path,
                                          const StoreOptions& options, std::shared_ptr<BaseCache> cache) {
  return no_throw("store", [&]() -> Result<std::unique_ptr<Store>> {
    BITSNAP_ASSIGN(std::unique_ptr<Store::Impl> impl, Store::Impl::open(file_system, path, options, std::move(cache)));
    return std::make_unique<Store>(std::move(impl));
  });
}

}  // namespace store

Store::Store(std::unique_ptr<Impl> impl) noexcept : impl_(std::move(impl)) {}
Store::~Store() = default;

Result<std::unique_ptr<Store>> Store::open(const std::string& path, const StoreOptions& options) {
  return no_throw("store", [&]() -> Result<std::unique_ptr<Store>> {
    BITSNAP_ASSIGN(const store::Home home, store::find_home(path));
    return store::open_store(*home.files, home.path, options);
  });
}

const std::string& Store::path() const noexcept { return impl_->path(); }
const std::string& Store::run_id() const noexcept { return impl_->run().id; }

const CodingSettings& Store::settings() const noexcept { return impl_->settings(); }
bool Store::is_durable() const noexcept { return impl_->directories().is_durable(); }

Result<std::vector<std::uint64_t>> Store::steps() const {
  return no_throw("store", [&] { return impl_->directories().steps(); });
}

Result<std::vector<Checkpoint>> Store::checkpoints() const {
  return no_throw("store", [&] { return impl_->checkpoints(); });
}

Result<Checkpoint> Store::checkpoint(std::uint64_t step) const {
  return no_throw("store", [&] { return impl_->checkpoint(step); });
}

Result<std::optional<std::uint64_t>> Store::latest() const {
  return no_throw("store", [&] { return impl_->newest_whole(); });
}

Result<RunUsage> Store::usage() {
  return no_throw("store", [&] { return impl_->usage(); });
}

Result<std::shared_ptr<const Snapshot>> Store::snapshot(std::optional<std::uint64_t> step, std::uint32_t shard,
                                                        bool partial) const {
  return no_throw("store", [&] { return impl_->snapshot(step, shard, partial); });
}

Result<std::shared_ptr<const std::vector<GlobalTensor>>> Store::tensors(std::uint64_t step) const {
  return no_throw("store", [&] { return impl_->tensors().list(step); });
}

Result<void> Store::read_boxes(std::uint64_t step, std::span<const TensorBox> boxes, const RunOptions& options) const {
  return no_throw("store", [&] { return impl_->tensors().read(step, boxes, options); });
}

Result<std::vector<CheckpointFile>> Store::files(std::uint64_t step) const {
  return no_throw("store", [&] { return impl_->files(step); });
}

Result<Checkpoint> Store::save(std::uint64_t step, const State& state, const RunOptions& options,
                               const SaveCheck& check, const CommitOptions& commit) {
  auto saved = no_throw("saving", [&] {
    return impl_->save(step, std::nullopt, state, options, check, commit).map([](store::PendingSave save) {
      return save.info;
    });
  });
  if (saved) impl_->apply_retention(*saved, options);
  return saved;
}

Result<SaveSummary> Store::save_shard(std::uint64_t step, const ShardPlace& place, const State& state,
                                      const RunOptions& options, bool replace) {
  return no_throw("saving", [&] {
    return impl_->save(step, place, state, options, nullptr, {.replace = replace}).map([](store::PendingSave save) {
      return save.summary;
    });
  });
}

Result<CommitOutcome> Store::commit(std::uint64_t step, std::uint32_t shards, const std::string& attempt,
                                    const CommitOptions& options) {
  auto outcome = no_throw("committing", [&] { return impl_->commit(step, shards, attempt, options); });
  if (outcome && *outcome) impl_->apply_retention(*outcome->checkpoint, {});
  return outcome;
}

Result<void> Store::label(std::uint64_t step, const std::vector<std::string>& labels) {
  return no_throw("labelling", [&] { return impl_->label(step, labels); });
}

Result<void> Store::unlabel(const std::string& label) {
  return no_throw("labelling", [&] { return impl_->unlabel(label); });
}

Result<std::uint64_t> Store::find(const std::string& label) const {
  return no_throw("store", [&] { return impl_->labels().find(label); });
}

Result<std::vector<StepLabel>> Store::labels() const {
  return no_throw("store", [&] { return impl_->labels().all(); });
}

Result<PruneReport> Store::prune(const Retention& retention, const PruneOptions& options) {
  return no_throw("pruning", [&] { return impl_->prune(retention, options); });
}

Result<PruneReport> Store::remove(const std::vector<std::uint64_t>& steps, const PruneOptions& options) {
  return no_throw("removing", [&] { return impl_->remove(steps, options); });
}

Result<Branch> Store::make_branch(const std::string& name, std::uint64_t step, const BranchOptions& options) const {
  return no_throw("making a branch", [&] { return impl_->make_branch(name, step, options); });
}

Result<std::vector<Branch>> Store::branches() const {
  return no_throw("store", [&] { return impl_->branches(); });
}

Result<void> Store::remove_branch(const std::string& name) const {
  return no_throw("removing a branch", [&] { return impl_->remove_branch(name); });
}

Result<RollbackReport> Store::rollback(std::uint64_t step, const RunOptions& options) {
  return no_throw("rolling back", [&] { return impl_->rollback(step, options); });
}

Result<StoreVerification> Store::verify(const StoreVerifyOptions& options) const {
  return no_throw("verifying", [&] { return impl_->verify(options); });
}

Result<RepairReport> Store::repair(const std::string& path, const RepairOptions& options) {
  return no_throw("repairing", [&]() -> Result<RepairReport> {
    BITSNAP_ASSIGN(const store::Home home, store::find_home(path));
    return store::repair_store(*home.files, home.path, options);
  });
}

}  // namespace bitsnap
