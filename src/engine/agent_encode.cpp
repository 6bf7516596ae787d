// The encoder thread: encodes each save from its slot, keeps the snapshot in memory, and hands a save to the store to
// the writer thread (agent_publish.cpp).
#include <algorithm>

#include <fmt/format.h>

#include "base/no_throw.hpp"
#include "base/try.hpp"
#include "container/file_reader.hpp"
#include "engine/agent_rank.hpp"
#include "engine/slot_layout.hpp"
#include "restore/open_snapshot.hpp"
#include "save/base_finder.hpp"
#include "save/snapshot_writer.hpp"
#include "store/spilling_file.hpp"
#include "store/store_impl.hpp"

namespace bitsnap::engine {
namespace {

// The least `max_depth` of snapshots for memory only.
constexpr std::uint32_t kLeastMemoryChain = 8;

// Whether the state may still be kept in memory after it could not be coded for the store.
bool is_fault_of_store(const Error& error) { return error.kind() == ErrorKind::io || error.kind() == ErrorKind::busy; }

}  // namespace

void AgentRank::encode(const QueuedSave& queued) {
  const bool persist = queued.staged.persist;
  Publication* const publication = persist ? queue_.begin_publication(queued) : nullptr;
  if (persist && publication == nullptr) return;  // the rank ends
  ProgressEvent event;
  event.ticket = queued.staged.ticket;
  const auto run = [&]() -> Result<void> {
    BITSNAP_ASSIGN(const Encoded encoded,
                   persist ? encode_for_store(queued, *publication, event) : encode_for_memory(queued, event));
    if (encoded.snapshot == nullptr) return {};
    Result<void> kept = keep(queued, encoded, event);
    if (kept || !persist) return kept;
    // The save can still be published, so the error only shows in the agent's report.
    totals_.set_last_error(kept.error());
    free_slot(queued.staged.slot);
    return {};
  };
  Result<void> encoded = no_throw("encoding", run);
  if (!encoded) {
    // The slot is freed or held first: as soon as the trainer knows of the failure, it may offer another arena.
    if (!persist || !is_fault_of_store(encoded.error()) || !keep_in_memory_only(queued)) free_slot(queued.staged.slot);
    fail_save(queued, Error(encoded.error()).within(fmt::format("step {}", queued.staged.step)));
  }
  if (persist) end_encoding(*publication, encoded.has_value(), event);
}

bool AgentRank::keep_in_memory_only(const QueuedSave& queued) {
  ProgressEvent event;
  event.ticket = queued.staged.ticket;
  QueuedSave only_memory = queued;
  only_memory.staged.persist = false;
  const auto run = [&]() -> Result<void> {
    BITSNAP_ASSIGN(const Encoded encoded, encode_for_memory(only_memory, event));
    return keep(only_memory, encoded, event);
  };
  const Result<void> kept = no_throw("encoding", run);
  if (!kept) totals_.set_last_error(kept.error());
  return kept.has_value();
}

Result<std::unique_lock<std::mutex>> AgentRank::begin_encoding(Publication& publication) {
  const std::uint64_t step = publication.queued.staged.step;
  const std::string& attempt = publication.queued.attempt;
  std::optional<ShardPlace> place;
  if (job_.world_size > 1) place = ShardPlace{.shard = rank_, .shards = job_.world_size, .attempt = attempt};
  // The gate comes before begin(), which locks the store. Otherwise this rank would hold the store's lock while it
  // waits to encode, and other ranks could not prune.
  std::unique_lock gate(job_.encode_gate);
  Store::Impl& impl = Store::Impl::of(*publication.store);
  BITSNAP_ASSIGN(publication.save, impl.begin(step, place, job_.codings.find(step, attempt)));
  if (place) job_.codings.note(step, attempt, publication.save->coding);
  return gate;
}

void AgentRank::note_encoded(const store::PendingSave& save, ProgressEvent& event) {
  if (save.coding.damage) totals_.set_last_error(*save.coding.damage);
  event.raw_bytes = save.summary.raw_bytes;
  event.stored_bytes = save.summary.stored_bytes;
  event.base = save.coding.base;
}

void AgentRank::end_encoding(Publication& publication, bool is_encoded, const ProgressEvent& event) {
  if (!is_encoded) {
    publication.save.reset();
    publication.store.reset();
    store_.note_stale();
  }
  queue_.end_encoding(publication, is_encoded, event);
}

Result<State> AgentRank::read_state(const QueuedSave& queued) {
  BITSNAP_ASSIGN(State state, read_slot(queued.slot(), queued.staged.bytes));
  const std::lock_guard lock(mutex_);
  if (std::exchange(budget_.tensors, state.tensors.size()) != state.tensors.size()) cache_->set_limits(memory_limits());
  return state;
}

Result<AgentRank::Encoded> AgentRank::encode_for_store(const QueuedSave& queued, Publication& publication,
                                                       ProgressEvent& event) {
  const std::uint64_t step = queued.staged.step;
  BITSNAP_ASSIGN(publication.store, store_.open());
  if (queued.staged.again) {
    // An earlier agent may have committed the step and died before it told the trainer.
    BITSNAP_ASSIGN(const std::vector<std::uint64_t> steps, publication.store->steps());
    if (std::ranges::binary_search(steps, step)) {
      free_slot(queued.staged.slot);
      return Encoded();
    }
  }
  BITSNAP_ASSIGN(const std::unique_lock<std::mutex> gate, begin_encoding(publication));
  const os::Stopwatch stopwatch;
  BITSNAP_ASSIGN(const State state, read_state(queued));
  store::PendingSave& save = *publication.save;
  BITSNAP_TRY(
      Store::Impl::of(*publication.store).encode(save, state, {.threads = job_.threads}, store::Destination::memory));
  note_encoded(save, event);
  event.encode_us = elapsed_us(stopwatch);
  Encoded encoded{save.snapshot, save.blob, tensor_bytes(state)};
  // publish() needs the open file of a save that is on disk only.
  if (save.blob != nullptr) save.snapshot.reset();
  return encoded;
}

Result<AgentRank::Encoded> AgentRank::encode_for_memory(const QueuedSave& queued, ProgressEvent& event) {
  SaveOptions options{.settings = store_.memory_settings()};
  bool has_budget = false;
  {
    const std::lock_guard lock(mutex_);
    has_budget = budget_.bytes != 0;
    options.settings.max_depth = memory_chain();
  }
  const std::unique_lock gate(job_.encode_gate);
  const os::Stopwatch stopwatch;
  BITSNAP_ASSIGN(const State state, read_state(queued));
  const std::string name = fmt::format("step {} in memory", queued.staged.step);
  std::shared_ptr<const store::Blob> blob;
  const auto write = [&](std::shared_ptr<const Base> newest) -> Result<save::WriteSummary> {
    // The disk may be slow to take the file of an earlier step. Without a budget of the caller, no save fails for that.
    const bool may_exceed = newest == nullptr && !has_budget;
    std::optional<save::SingleBase> base;
    if (newest != nullptr) base.emplace(std::move(newest));
    store::BaseCache::Room room(*cache_, may_exceed);
    store::SpillingFile file(name, [&room](std::uint64_t bytes) { return room.take(bytes); });
    BITSNAP_ASSIGN(save::WriteSummary written,
                   save::write_snapshot(state, options, base ? &*base : nullptr, nullptr, file, *executor_));
    BITSNAP_TRY(file.close());
    blob = file.blob();
    room.finish(blob);
    return written;
  };
  Result<save::WriteSummary> written = write(memory_base(*options.settings.max_depth, event));
  // Without the base in memory there may be enough room, or the base was pruned.
  if (!written && event.base) {
    event.base.reset();
    written = write(nullptr);
  }
  if (!written) return tl::unexpected(std::move(written).error());
  event.raw_bytes = written->summary.raw_bytes;
  event.stored_bytes = written->summary.stored_bytes;
  event.encode_us = elapsed_us(stopwatch);
  if (written->references.empty()) event.base.reset();
  BITSNAP_ASSIGN(std::shared_ptr<const Snapshot> snapshot,
                 restore::open_snapshot(store::blob_file(blob, name), {}, os::real_file_system()));
  return Encoded{std::move(snapshot), std::move(blob), tensor_bytes(state)};
}

// A chain stays in memory until none of its steps is wanted, so it may only be long where many steps are.
std::uint32_t AgentRank::memory_chain() const {
  return std::clamp(budget_.snapshots, kLeastMemoryChain, kLongestChain);
}

std::shared_ptr<const Base> AgentRank::memory_base(std::uint32_t longest_chain, ProgressEvent& event) {
  const auto newest = cache_->newest();
  if (!newest || !newest->is_whole || newest->links >= longest_chain) return nullptr;
  auto opened = cache_->open(newest->id);
  if (!opened) {
    totals_.set_last_error(opened.error());
    return nullptr;
  }
  event.base = newest->step;
  return std::move(*opened);
}

bool AgentRank::cache_file(const QueuedSave& queued, const Encoded& encoded, std::uint64_t raw_bytes) {
  if (encoded.blob == nullptr) {
    cache_->forget_since(queued.staged.step);
    return false;
  }
  store::CachedSnapshot entry{.step = queued.staged.step,
                              .id = encoded.snapshot->id(),
                              .blob = encoded.blob,
                              .needs = {},
                              .persisted = queued.staged.persist,
                              .attempt = queued.attempt,
                              .raw_bytes = raw_bytes};
  for (const BaseReference& base : encoded.snapshot->bases()) entry.needs.push_back(base.id);
  return cache_->put(std::move(entry));
}

Result<void> AgentRank::keep(const QueuedSave& queued, const Encoded& encoded, ProgressEvent& event) {
  const Snapshot& snapshot = *encoded.snapshot;
  // If nothing was quantized, the slot holds the complete state, and the snapshot can be read without its bases.
  auto chunks = std::make_shared<restore::DecodedState>(snapshot, encoded.tensors, queued.arena);
  // With two slots, the slot is held until the next state is encoded. It may be the base of the next save. If
  // this agent dies before publishing, the trainer stages the slot again with the next agent.
  const bool is_held = queued.arena->slots > 1;
  std::shared_ptr<const SnapshotFrame> frame;
  if (chunks->is_complete() && is_held) {
    std::unique_ptr<os::RandomAccessFile> file;
    if (encoded.blob != nullptr) {
      file = store::blob_file(encoded.blob, snapshot.name());
    } else {
      BITSNAP_ASSIGN(file, job_.files.open(snapshot.name()));
    }
    BITSNAP_ASSIGN(SnapshotFrame read, SnapshotFrame::read(*file));
    frame = std::make_shared<const SnapshotFrame>(std::move(read));
  }
  const bool has_chain = cache_file(queued, encoded, event.raw_bytes);
  const bool is_whole = has_chain || frame != nullptr;
  if (!is_whole && !queued.staged.persist) {
    return fail(ErrorKind::resource_exhausted,
                fmt::format("the compressed state has {} bytes, but the budget leaves only {} bytes for snapshots",
                            encoded.blob->size_bytes(), cache_->limits().bytes));
  }
  cache_->set_decoded(snapshot.id(), chunks);
  // One critical section: as soon as no slot is staged, the trainer may offer another arena.
  const std::lock_guard lock(mutex_);
  totals_.add_encoded(event, is_whole);
  const std::uint32_t slot = queued.staged.slot;
  if (is_whole) {
    event.stage = Stage::memory;
    ProgressEvent reached = event;
    // In one message, so that a trainer that hears of the state can save the next one, whatever happens to this agent.
    if (!is_held) reached.free = slot;
    tell(std::move(reached));
  }
  if (const auto held = slots_.held()) free_slot_locked(*held);
  if (is_held) {
    slots_.hold(slot, {.step = queued.staged.step,
                       .id = snapshot.id(),
                       .attempt = queued.attempt,
                       .chunks = std::move(chunks),
                       .frame = std::move(frame),
                       .raw_bytes = event.raw_bytes});
  } else {
    is_whole ? slots_.free(slot) : free_slot_locked(slot);
  }
  return {};
}

}  // namespace bitsnap::engine
