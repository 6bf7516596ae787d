// Encoding: chooses what a checkpoint is coded against, and writes its snapshot file.
#include <algorithm>
#include <ranges>
#include <utility>

#include <bitsnap/object_store.hpp>

#include "base/try.hpp"
#include "exec/executor.hpp"
#include "save/base_finder.hpp"
#include "save/snapshot_rewriter.hpp"
#include "save/snapshot_writer.hpp"
#include "store/coding_plan.hpp"
#include "store/spilling_file.hpp"
#include "store/store_impl.hpp"

namespace bitsnap {

using Opening = save::ShardedBases::Opening;

namespace {

// How many records of the newest checkpoints tell what the next one is coded against.
constexpr std::size_t kRecordsForBase = 16;

}  // namespace

store::Coding Store::Impl::choose_coding(std::optional<std::uint64_t> newest) {
  store::Coding coding;
  // Nothing is coded against a checkpoint that is kept as damaged.
  while (newest) {
    const Result<store::CommitRecord>& found = known_.record(*newest);
    if (!found || found->damaged_tensors == 0) break;
    if (Result<void> known = known_.load_all(); !known) {
      coding.damage = std::move(known).error();
      return coding;
    }
    newest = known_.newest_below(*newest);
  }
  if (!newest) return coding;
  const std::uint64_t step = *newest;
  const Result<store::CommitRecord>& record = known_.record(step);
  if (!record) {
    coding.damage = record.error();
    return coding;
  }
  const std::uint32_t max_depth = *settings_.max_depth;
  if (has_retention() && max_depth > 0) {
    auto retained = choose_retained_coding(step);
    if (retained) return *std::move(retained);
    coding.damage = std::move(retained).error();
    return coding;
  }
  coding.finder = step;
  if (record->links >= max_depth) return coding;  // a keyframe: it refers only to unchanged chunks
  std::uint64_t base = step;
  if (settings_.base == BaseRule::keyframe) {
    std::shared_ptr<const Result<store::CommitRecord>> at = known_[step].record;
    while ((*at)->base && *(*at)->base < (*at)->step) {
      const std::uint64_t earlier = *(*at)->base;
      Result<store::KnownStep*> known = known_.find(earlier);
      if (!known || *known == nullptr) {  // pruned, as nobody needed it: there is no keyframe to code against
        if (!known) coding.damage = std::move(known).error();
        return coding;
      }
      const Result<store::CommitRecord>& next = known_.record(earlier);
      if (!next) {
        coding.damage = next.error();
        return coding;
      }
      at = (*known)->record;
    }
    const store::CommitRecord& keyframe = **at;
    const auto refers_to_what_is_there = [&](const store::ShardFile& file) {
      return reader_->check_references(keyframe.step, file).has_value();
    };
    // A prune may have removed what a retired keyframe refers to, unless the prune kept it as the next base.
    if (known_[keyframe.step].state == store::StepState::retired &&
        !std::ranges::all_of(keyframe.shards, refers_to_what_is_there)) {
      return coding;
    }
    base = keyframe.step;
    coding.finder = base;
  }
  coding.base = base;
  coding.max_depth = max_depth;
  coding.links = record->links + 1;
  return coding;
}

bool Store::Impl::has_retention() const noexcept {
  return options_.retention.keep_last.has_value() || options_.retention.keep_every.has_value();
}

Result<store::Coding> Store::Impl::choose_retained_coding(std::uint64_t newest) {
  BITSNAP_TRY(known_.load_all());
  std::set<std::uint64_t> labelled;
  if (options_.retention.keep_labelled) {
    BITSNAP_ASSIGN(const std::vector<StepLabel> labels, labels_.all());
    for (const StepLabel& label : labels) labelled.insert(label.step);
  }
  std::vector<store::StepNode> nodes;
  for (const auto& [step, known] : known_.all()) {
    if (step > newest) break;
    store::StepNode& node = nodes.emplace_back();
    node.step = step;
    node.state = known.state;
    node.is_labelled = labelled.contains(step);
  }
  // The records of old checkpoints say nothing of the next one.
  std::size_t read = 0;
  for (store::StepNode& node : std::views::reverse(nodes)) {
    if (node.state == store::StepState::uncommitted || ++read > kRecordsForBase) continue;
    store::KnownStep& known = known_[node.step];
    const Result<store::CommitRecord>& record = known_.record(node.step);
    node.is_damaged = !record;
    if (!record) continue;
    store::describe(node, known, *record);
  }
  std::vector<store::StepNode> with_next = nodes;
  with_next.emplace_back().step = UINT64_MAX;
  with_next.back().state = store::StepState::committed;
  std::vector<std::uint64_t> kept = store::plan_retention(with_next, options_.retention).kept;
  const store::CodingShares shares = store::shares_of(nodes);
  store::Coding coding;
  coding.coded_share = shares.earlier ? shares.earlier : shares.later;
  if (coding.coded_share) coding.coded_age = shares.remembered_age ? *shares.remembered_age + 1 : 0;
  const store::CodingPattern pattern = store::choose_pattern(shares, kept.size());
  kept.pop_back();
  coding.base = store::choose_base(nodes, kept, pattern);
  if (!coding.base) return coding;
  coding.finder = coding.base;
  coding.max_depth = coding.links = 1;
  return coding;
}

bool Store::Impl::should_code_like(const store::Coding& other, const ShardPlace& place) {
  if (other.damage) return false;
  if (const std::optional<std::uint64_t> last = known_.newest()) {
    const Result<store::CommitRecord>& record = known_.record(*last);
    if (!record || record->shards.size() != place.shards) return false;
    const SnapshotId& own = record->shards[place.shard].id;
    if (std::ranges::count(record->shards, own, &store::ShardFile::id) < 2) return false;
  }
  if (!other.finder) return true;
  const Result<store::KnownStep*> known = known_.find(*other.finder);
  return known && *known != nullptr && (*known)->state == store::StepState::committed &&
         known_.record(*other.finder).has_value();
}

Result<void> Store::Impl::read_base_from_memory(const Snapshot& base, unsigned threads, bool is_new) const {
  // An agent looks for no damage, and nobody does in an object store, where it would cost a download.
  if (!cache_->attach_decoded(base) || is_new || !hands_base_over_as_ || is_object_path(layout_.root())) return {};
  BITSNAP_ASSIGN(const std::vector<Damage> damages, base.verify(false, {.threads = threads, .progress = nullptr}));
  return damages.empty() ? Result<void>() : tl::unexpected(damages.front().error);
}

std::unique_ptr<save::BaseFinder> Store::Impl::find_bases(const store::PendingSave& save,
                                                          store::CheckpointReader& reader,
                                                          const std::shared_ptr<store::BaseWatch>& watch,
                                                          unsigned threads) {
  const auto record = known_[*save.coding.finder].record;
  const save::ShardedBases::Place own =
      save.place ? save::ShardedBases::Place{save.place->shard, save.place->shards} : save::ShardedBases::Place{};
  return std::make_unique<save::ShardedBases>(
      static_cast<std::uint32_t>((*record)->shards.size()), own,
      [this, &reader, record, own, watch, threads](std::uint32_t shard,
                                                   Opening opening) -> Result<std::shared_ptr<const Base>> {
        const store::CommitRecord& base = **record;
        auto opened = reader.open_file(base.step, base.shards[shard], opening == Opening::look);
        // Damage in another rank's shard does not matter, because this shard may need nothing from it.
        if (!opened && opening == Opening::look && store::is_damage(opened.error())) return nullptr;
        if (!opened) {
          watch->failed = true;
          return tl::unexpected(std::move(opened).error());
        }
        std::shared_ptr<const Snapshot> snapshot = std::move(*opened);
        if (shard == own.shard) {
          Result<void> checked = read_base_from_memory(*snapshot, threads);
          if (!checked) {
            watch->failed = true;
            return tl::unexpected(std::move(checked).error());
          }
        }
        return std::make_shared<store::WatchedBase>(std::move(snapshot), watch);
      });
}

Result<void> Store::Impl::encode_file(store::PendingSave& save, const Write& write, const RunOptions& options,
                                      store::Destination destination, const std::shared_ptr<store::BaseWatch>& watch) {
  SaveOptions coding{.settings = settings_};
  coding.settings.max_depth = save.coding.max_depth;
  coding.progress = options.progress;
  // Uses a new reader: a file that another reader holds open may have been removed or replaced, and the new file must
  // refer to what is there now.
  store::CheckpointReader reader(file_system_, layout_, options_.limits, cache_.get(), os::AccessPattern::repeated);
  std::unique_ptr<save::BaseFinder> bases;
  if (save.coding.finder) bases = find_bases(save, reader, watch, options.threads);

  const std::string path = layout_.step_file(save.step, save.file_name);
  const auto create = [&]() -> Result<std::unique_ptr<os::WritableFile>> {
    BITSNAP_TRY(directories_.create(save.step));
    return file_system_.create(path);
  };
  store::BaseCache::Room room(*cache_);
  std::unique_ptr<os::WritableFile> file;
  const store::SpillingFile* in_memory = nullptr;
  if (destination == store::Destination::memory) {
    auto writer =
        std::make_unique<store::SpillingFile>(path, [&room](std::uint64_t bytes) { return room.take(bytes); }, create);
    in_memory = writer.get();
    file = std::move(writer);
  } else {
    BITSNAP_ASSIGN(file, create());
  }
  const auto executor = exec::make_executor(options.threads);
  auto result = write(coding, bases.get(), *file, *executor);
  if (!result) return tl::unexpected(name_file(std::move(result).error(), path));
  BITSNAP_TRY(file->sync());
  BITSNAP_TRY(file->close());
  if (in_memory != nullptr) save.blob = in_memory->blob();
  if (save.blob != nullptr) room.finish(save.blob);

  save.summary = result->summary;
  save.file = {.file = save.file_name,
               .id = result->summary.id,
               .bytes = result->summary.stored_bytes,
               .raw_bytes = result->summary.raw_bytes,
               .depth = result->depth,
               .references = {}};
  // From here on, a failure means that the base is unusable: the file must open with everything that it refers to.
  const auto refer = [&]() -> Result<void> {
    for (const save::Reference& reference : result->references) {
      BITSNAP_ASSIGN(save.file.references.emplace_back(), reader.reference_to(reference));
    }
    store::CheckpointReader fresh(file_system_, layout_, options_.limits, cache_.get());
    std::unique_ptr<os::RandomAccessFile> written;
    if (save.blob != nullptr) {
      written = store::blob_file(save.blob, path);
    } else {
      BITSNAP_ASSIGN(written, file_system_.open(path));
    }
    BITSNAP_ASSIGN(save.snapshot, fresh.open_file(save.step, save.file, false, std::move(written)));
    save.metrics = store::metrics_of(save.snapshot->metadata());
    return {};
  };
  if (Result<void> referred = refer(); !referred) {
    watch->failed = true;
    return referred;
  }
  return {};
}

bool Store::Impl::is_next_base(const store::PendingSave& save) const {
  return settings_.base == BaseRule::previous || save.coding.links == 0;
}

Result<void> Store::Impl::encode_or_keyframe(store::PendingSave& save, const Write& write, const RunOptions& options,
                                             store::Destination destination) {
  const auto encode = [&]() -> Result<void> {
    const auto watch = std::make_shared<store::BaseWatch>();
    Result<void> encoded = encode_file(save, write, options, destination, watch);
    if (encoded || !watch->failed || encoded.error().kind() == ErrorKind::cancelled) return encoded;
    // The base is damaged or gone. The training must be able to save nevertheless, so the file becomes a keyframe.
    save.coding = {};
    save.coding.damage = std::move(encoded).error();
    const std::string path = layout_.step_file(save.step, save.file_name);
    if (const auto file = file_system_.stat(path); file && file->exists) {
      BITSNAP_TRY(directories_.remove_file(save.step, save.file_name));
    }
    return encode_file(save, write, options, destination, std::make_shared<store::BaseWatch>());
  };
  Result<void> encoded = encode();
  if (!encoded) take_back(save);
  return encoded;
}

Result<void> Store::Impl::encode(store::PendingSave& save, const State& state, const RunOptions& options,
                                 store::Destination destination) {
  if (destination == store::Destination::disk && is_next_base(save)) {
    // A base in an object store would have to be fetched again.
    save.keeper = cache_->make_keeper(settings_.base == BaseRule::keyframe || is_object_path(layout_.root()));
  }
  const auto write = [&](const SaveOptions& coding, save::BaseFinder* bases, os::WritableFile& file,
                         exec::Executor& executor) {
    return save::write_snapshot(state, coding, bases, save.keeper.get(), file, executor);
  };
  return encode_or_keyframe(save, write, options, destination);
}

Result<void> Store::Impl::encode(store::PendingSave& save, const Snapshot& source, const RunOptions& options) {
  save.coding.base.reset();
  save.coding.links = 0;
  save.coding.max_depth = 0;
  std::vector<SnapshotId> dropped;
  for (const BaseReference& base : source.bases()) dropped.push_back(base.id);
  const auto write = [&](const SaveOptions& coding, save::BaseFinder* bases, os::WritableFile& file,
                         exec::Executor& executor) {
    return save::rewrite_snapshot(source, {.dropped = dropped}, bases, coding, file, executor);
  };
  return encode_or_keyframe(save, write, options, store::Destination::disk);
}

}  // namespace bitsnap
