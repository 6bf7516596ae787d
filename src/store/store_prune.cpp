// Retention: what is not to stay goes, and what others need of it is kept for them or written into them.
#include <algorithm>
#include <ranges>
#include <utility>

#include <fmt/format.h>

#include "base/try.hpp"
#include "os/atomic_file.hpp"
#include "store/live_bytes.hpp"
#include "store/store_impl.hpp"

namespace bitsnap {
namespace {

using store::is_damage;

bool refers_to(const store::StepNode& node, const std::set<std::uint64_t>& steps) {
  return std::ranges::any_of(node.references, [&](const auto& reference) { return steps.contains(reference.step); });
}

}  // namespace

Result<std::vector<store::StepNode>> Store::Impl::step_nodes() {
  std::vector<store::StepNode> nodes;
  for (auto& [step, known] : known_) {
    store::StepNode& node = nodes.emplace_back();
    node.step = step;
    node.state = known.state;
    if (known.state == store::StepState::uncommitted) {
      BITSNAP_ASSIGN(const std::vector<store::ShardRecord> pending, pending_shards(step));
      for (const store::ShardRecord& shard : pending) {
        for (const store::StepReference& reference : shard.file.references) {
          node.references.push_back({reference.step, reference.standalone});
        }
      }
      continue;
    }
    const Result<store::CommitRecord>& record = record_of(step, known);
    if (!record) {
      // What the system refused now may be readable later; what cannot be read is not judged.
      if (record.error().kind() != ErrorKind::corrupt && record.error().kind() != ErrorKind::unsupported) {
        Error error = record.error();
        known.record.reset();
        return tl::unexpected(std::move(error));
      }
      node.is_damaged = true;
      continue;
    }
    node.bytes = known.record_bytes;
    for (const store::ShardFile& file : record->shards) {
      node.bytes += file.bytes;
      for (const store::StepReference& reference : file.references) {
        node.references.push_back({reference.step, reference.standalone});
      }
    }
  }
  return nodes;
}

Result<void> Store::Impl::note_missing_files(std::vector<store::StepNode>& nodes) {
  for (store::StepNode& node : std::views::reverse(nodes)) {
    if (node.state != store::StepState::committed || node.is_damaged) continue;
    for (const store::ShardFile& file : record_of(node.step, known_[node.step])->shards) {
      BITSNAP_ASSIGN(const os::FileInfo info, file_system_.stat(layout_.step_file(node.step, file.file)));
      if (!info.exists || info.size_bytes != file.bytes) node.is_damaged = true;
    }
    if (!node.is_damaged) return {};
  }
  return {};
}

Result<std::set<std::uint64_t>> Store::Impl::choose_dropped(const std::vector<store::StepNode>& nodes,
                                                            const store::RetentionPlan& plan, Reencode reencode) {
  std::set<std::uint64_t> dropped;
  if (reencode == Reencode::never || plan.needed.empty()) return dropped;
  // What a damaged checkpoint may need is not taken from it, nor what shards that are not committed yet refer to.
  if (std::ranges::any_of(nodes, [](const store::StepNode& node) {
        return node.is_damaged || (node.state == store::StepState::uncommitted && !node.references.empty());
      })) {
    return dropped;
  }
  if (reencode == Reencode::always) {
    for (const auto& needed : plan.needed) dropped.insert(needed.step);
    return dropped;
  }

  // Links of chains go by themselves with the checkpoints that are coded against them. What is held for the sake of
  // unchanged chunks would stay for ever, with all else that is in its files.
  std::set<std::uint64_t> chains;
  std::set<std::uint64_t> whole;
  for (const std::uint64_t step : plan.kept) {
    whole.insert(step);
    for (std::optional<std::uint64_t> at = step; at && chains.insert(*at).second;) {
      const auto known = known_.find(*at);
      if (known == known_.end()) break;
      const Result<store::CommitRecord>& record = record_of(*at, known->second);
      at = record ? record->base : std::nullopt;
    }
  }
  std::set<std::uint64_t> held;
  for (const auto& needed : plan.needed) {
    if (needed.whole) whole.insert(needed.step);
    if (!chains.contains(needed.step)) held.insert(needed.step);
  }
  if (held.empty()) return dropped;

  store::LiveChunks live;
  for (const store::StepNode& node : nodes) {
    if (!whole.contains(node.step) || !refers_to(node, held)) continue;
    for (const store::ShardFile& file : record_of(node.step, known_[node.step])->shards) {
      BITSNAP_ASSIGN(const auto snapshot, reader_->open_file(node.step, file));
      live.note(*snapshot, file, held);
    }
  }
  std::uint64_t dead_bytes = 0;
  for (const store::StepNode& node : nodes) {
    if (!held.contains(node.step)) continue;
    std::uint64_t live_bytes = 0;
    const store::CommitRecord& record = *record_of(node.step, known_[node.step]);
    for (std::uint32_t shard = 0; shard < record.shards.size(); ++shard) {
      BITSNAP_ASSIGN(const auto snapshot, reader_->open_alone(node.step, record.shards[shard]));
      live_bytes += live.bytes(node.step, shard, *snapshot);
    }
    if (live_bytes < node.bytes / 2) {
      dropped.insert(node.step);
      dead_bytes += node.bytes - live_bytes;
    }
  }
  std::uint64_t written_bytes = 0;
  for (const store::StepNode& node : nodes) {
    if (whole.contains(node.step) && !dropped.contains(node.step) && refers_to(node, dropped)) {
      written_bytes += node.bytes;
    }
  }
  if (dead_bytes <= written_bytes) dropped.clear();
  return dropped;
}

Result<void> Store::Impl::remove_step(std::uint64_t step) {
  Result<void> removed = directories_.remove(step);
  if (!removed) {
    lose_sight();
    return removed;
  }
  known_.erase(step);
  return {};
}

Result<void> Store::Impl::retire_step(std::uint64_t step) {
  Result<void> retired = directories_.retire(step);
  if (!retired) {
    lose_sight();
    return retired;
  }
  known_[step].state = store::StepState::retired;
  return {};
}

Result<std::vector<std::string>> Store::Impl::remove_strays(bool dry_run) {
  std::vector<std::string> found;
  std::set<std::uint64_t> removed;
  const std::optional<std::uint64_t> last = newest();
  for (auto& [step, known] : std::views::reverse(known_)) {
    if (known.state == store::StepState::uncommitted) {
      // Above the newest, several ranks may be at it.
      if (lock_ == nullptr && (!last || step > *last)) continue;
      BITSNAP_ASSIGN(const bool is_spared, is_spared_when_uncommitted(step));
      if (is_spared) continue;
      removed.insert(step);
      found.push_back(fmt::format("{}/{}", store::kCheckpointsName, store::step_name(step)));
      if (!dry_run) BITSNAP_TRY(directories_.remove(step));
      continue;
    }
    const Result<store::CommitRecord>& record = record_of(step, known);
    BITSNAP_ASSIGN(const std::vector<std::string> strays, directories_.strays(step, record ? &*record : nullptr));
    // A writer that was killed while it retired or rewrote this step may not have synced its record. Were the one
    // before to come back after a crash, what that refers to has to be there: nothing is removed until it cannot.
    const bool may_come_back = known.state == store::StepState::retired || !strays.empty();
    if (!dry_run && may_come_back) BITSNAP_TRY(directories_.sync_step(step));
    for (const std::string& name : strays) {
      found.push_back(store::RunLayout::relative_file(step, name));
      if (!dry_run) BITSNAP_TRY(directories_.remove_file(step, name));
    }
  }
  if (!dry_run) {
    std::erase_if(known_, [&](const auto& entry) { return removed.contains(entry.first); });
  }
  BITSNAP_ASSIGN(const std::vector<std::string> names, file_system_.list_directory(layout_.root()));
  for (const std::string& name : names) {
    if (!os::AtomicFile::is_temporary_name(name)) continue;
    found.push_back(name);
    if (!dry_run) BITSNAP_TRY(file_system_.remove(os::join_path(layout_.root(), name)));
  }
  std::ranges::sort(found);
  return found;
}

Result<PruneReport> Store::Impl::prune(const Retention& retention, const PruneOptions& options) {
  BITSNAP_TRY(store::check_retention(retention));
  WriteGuard guard;
  if (options.dry_run) {
    guard.mutex = std::unique_lock(mutex_);
    if (lock_ == nullptr) sight_ = Sight::nothing;
  } else {
    BITSNAP_ASSIGN(guard, begin_writing(os::LockKind::exclusive));
  }
  BITSNAP_TRY(refresh_known());

  PruneReport report;
  if (!strays_removed_) {
    // Another rank may have committed the newest and been killed before it synced the name.
    const std::optional<std::uint64_t> last = newest();
    if (last && lock_ == nullptr && !options.dry_run) BITSNAP_TRY(directories_.sync_step(*last));
    BITSNAP_ASSIGN(report.strays, remove_strays(options.dry_run));
    strays_removed_ = !options.dry_run && lock_ != nullptr;
  }
  for (const std::uint64_t step : retention.keep) {
    const auto known = known_.find(step);
    if (known == known_.end() || known->second.state != store::StepState::committed) {
      return tl::unexpected(step_not_found(step));
    }
  }
  BITSNAP_ASSIGN(std::vector<store::StepNode> nodes, step_nodes());
  BITSNAP_TRY(note_missing_files(nodes));
  // What the next checkpoint will be coded against is needed, too.
  const std::optional<std::uint64_t> next_base = choose_coding().base;
  store::RetentionPlan plan = store::plan_retention(nodes, retention, next_base);
  const bool is_demanded = options.reencode == Reencode::always;
  auto chosen = choose_dropped(nodes, plan, options.reencode);
  // Damage must not keep old checkpoints from going: what cannot be read to see whether rewriting pays is left as it
  // is.
  if (!chosen && (is_demanded || !is_damage(chosen.error()))) return tl::unexpected(std::move(chosen).error());
  const std::set<std::uint64_t> dropped = chosen ? std::move(*chosen) : std::set<std::uint64_t>();
  if (!dropped.empty()) {
    std::vector<std::uint64_t> whole = plan.kept;
    for (const auto& needed : plan.needed) {
      if (needed.whole && !dropped.contains(needed.step)) whole.push_back(needed.step);
    }
    std::ranges::sort(whole);
    if (options.dry_run) {
      for (store::StepNode& node : nodes) {
        if (!std::ranges::binary_search(whole, node.step) || !refers_to(node, dropped)) continue;
        report.rewritten.push_back({node.step, node.bytes, 0});
        std::erase_if(node.references, [&](const auto& r) { return dropped.contains(r.step); });
      }
    } else {
      Result<void> rewritten = rewrite_all(dropped, whole, options.run, report.rewritten);
      if (!rewritten && (is_demanded || !is_damage(rewritten.error())))
        return tl::unexpected(std::move(rewritten).error());
      BITSNAP_ASSIGN(nodes, step_nodes());
    }
    BITSNAP_TRY(note_missing_files(nodes));
    plan = store::plan_retention(nodes, retention, next_base);
  }

  report.kept = plan.kept;
  const auto bytes_of = [&](std::uint64_t step) {
    return std::ranges::lower_bound(nodes, step, {}, &store::StepNode::step)->bytes;
  };
  for (const auto& needed : plan.needed) report.needed.push_back({needed.step, bytes_of(needed.step), needed.by});
  for (const std::uint64_t step : plan.removed) {
    report.removed.push_back({step, bytes_of(step)});
    report.removed_bytes += bytes_of(step);
  }
  if (options.dry_run) return report;

  // The newest first: nothing is removed before what depends on it.
  for (const store::StepNode& node : std::views::reverse(nodes)) {
    if (std::ranges::binary_search(plan.removed, node.step)) {
      BITSNAP_TRY(remove_step(node.step));
    } else if (node.state == store::StepState::committed && !std::ranges::binary_search(plan.kept, node.step)) {
      BITSNAP_TRY(retire_step(node.step));
    }
  }
  return report;
}

Result<RollbackReport> Store::Impl::rollback(std::uint64_t step) {
  BITSNAP_ASSIGN(const WriteGuard guard, begin_writing(os::LockKind::exclusive));
  BITSNAP_TRY(refresh_known());
  const auto target = known_.find(step);
  if (target == known_.end() || target->second.state != store::StepState::committed) {
    return tl::unexpected(step_not_found(step));
  }
  forget_bases();
  // Another rank may have committed it and been killed before it synced the name.
  if (lock_ == nullptr) BITSNAP_TRY(directories_.sync_step(step));
  RollbackReport report;
  while (known_.rbegin()->first > step) {
    const auto last = std::prev(known_.end());
    const std::uint64_t removed = last->first;
    const bool was_committed = last->second.state == store::StepState::committed;
    std::uint64_t bytes = last->second.record_bytes;
    if (last->second.state != store::StepState::uncommitted) {
      if (const Result<store::CommitRecord>& record = record_of(removed, last->second)) {
        for (const store::ShardFile& file : record->shards) bytes += file.bytes;
      }
    }
    BITSNAP_TRY(remove_step(removed));
    if (was_committed) report.removed.push_back(removed);
    report.removed_bytes += bytes;
  }
  return report;
}

}  // namespace bitsnap
