// The encoder thread: encodes each save from its slot, keeps the snapshot in memory, and hands a save to the store to
// the writer thread (agent_publish.cpp). It also copies snapshots for trainers that fetch them.
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
#include "store/store_impl.hpp"

namespace bitsnap::engine {
namespace {

// `max_depth` of snapshots for memory only.
constexpr std::uint32_t kMemoryChain = 8;

}  // namespace

void AgentRank::encode(const QueuedSave& queued) {
  const bool persist = queued.staged.persist;
  Publication* const publication = persist ? begin_publication(queued) : nullptr;
  if (persist && publication == nullptr) return;  // the rank ends
  ProgressEvent event;
  event.ticket = queued.staged.ticket;
  const auto run = [&]() -> Result<void> {
    BITSNAP_ASSIGN(const State state, read_slot(queued.slot, queued.staged.bytes));
    std::shared_ptr<const store::Blob> blob;
    if (persist) {
      BITSNAP_ASSIGN(blob, encode_for_store(queued, state, *publication, event));
      if (blob == nullptr) return {};
    } else {
      BITSNAP_ASSIGN(blob, encode_for_memory(queued, state, event));
    }
    event.stored_bytes = blob->size_bytes();
    Result<void> kept = keep(queued, tensor_bytes(state), blob, event);
    if (kept || !persist) return kept;
    // The save can still be published, so the error only shows in the agent's report.
    set_last_error(kept.error());
    free_slot(queued.staged.slot);
    return {};
  };
  Result<void> encoded = no_throw("encoding", run);
  if (!encoded) {
    // The slot is freed first: as soon as the trainer knows of the failure, it may offer another arena.
    free_slot(queued.staged.slot);
    fail_save(queued, Error(encoded.error()).within(fmt::format("step {}", queued.staged.step)));
  }
  if (persist) end_encoding(*publication, encoded.has_value(), event);
}

// The previous save in the store is the base of this one, so it must be published first.
AgentRank::Publication* AgentRank::begin_publication(const QueuedSave& queued) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return is_ending_ || (publication_ == nullptr && !is_committing_); });
  if (is_ending_) return nullptr;
  publication_ = std::make_unique<Publication>(Publication{.queued = queued});
  return publication_.get();
}

void AgentRank::end_encoding(Publication& publication, bool is_encoded, const ProgressEvent& event) {
  if (!is_encoded) {
    publication.save.reset();
    publication.store.reset();
  }
  {
    const std::lock_guard lock(mutex_);
    // The handle is opened again after a failure, because its view of the store may be stale.
    must_reopen_ |= !is_encoded;
    publication.event = event;
    publication.is_encoded = is_encoded;
    if (!is_encoded) publication_.reset();
  }
  changed_.notify_all();
}

Result<std::shared_ptr<const store::Blob>> AgentRank::encode_for_store(const QueuedSave& queued, const State& state,
                                                                       Publication& publication, ProgressEvent& event) {
  const std::uint64_t step = queued.staged.step;
  BITSNAP_ASSIGN(publication.store, open_store());
  if (queued.staged.again) {
    // An earlier agent may have committed the step and died before it told the trainer.
    BITSNAP_ASSIGN(const std::vector<std::uint64_t> steps, publication.store->steps());
    if (std::ranges::binary_search(steps, step)) {
      free_slot(queued.staged.slot);
      return nullptr;
    }
  }
  std::optional<ShardPlace> place;
  if (job_.world_size > 1) place = ShardPlace{.shard = rank_, .shards = job_.world_size, .attempt = queued.attempt};
  RunOptions run;
  run.threads = job_.threads;
  // The gate comes before begin(), which locks the store. Otherwise this rank would hold the store's lock while it
  // waits to encode, and other ranks could not prune.
  const std::unique_lock gate(job_.encode_gate);
  const os::Stopwatch stopwatch;
  Store::Impl& impl = Store::Impl::of(*publication.store);
  BITSNAP_ASSIGN(publication.save, impl.begin(step, place, job_.codings.find(step, queued.attempt)));
  if (place) job_.codings.note(step, queued.attempt, publication.save->coding);
  BITSNAP_TRY(impl.encode(*publication.save, state, run, store::Destination::memory));
  if (publication.save->coding.damage) set_last_error(*publication.save->coding.damage);
  event.raw_bytes = publication.save->summary.raw_bytes;
  event.base = publication.save->coding.base;
  event.encode_us = elapsed_us(stopwatch);
  return publication.save->blob;
}

Result<std::shared_ptr<const store::Blob>> AgentRank::encode_for_memory(const QueuedSave& queued, const State& state,
                                                                        ProgressEvent& event) {
  SaveOptions options{.settings = memory_settings()};
  options.settings.max_depth = kMemoryChain;
  const std::unique_lock gate(job_.encode_gate);
  const os::Stopwatch stopwatch;
  std::optional<save::SingleBase> base;
  if (std::shared_ptr<const Base> newest = memory_base(event)) base.emplace(std::move(newest));
  store::BlobWriter writer(fmt::format("step {} in memory", queued.staged.step));
  BITSNAP_ASSIGN(const save::WriteSummary written,
                 save::write_snapshot(state, options, base ? &*base : nullptr, nullptr, writer, *executor_));
  BITSNAP_TRY(writer.close());
  event.raw_bytes = written.summary.raw_bytes;
  event.encode_us = elapsed_us(stopwatch);
  if (written.references.empty()) event.base.reset();
  return writer.blob();
}

std::shared_ptr<const Base> AgentRank::memory_base(ProgressEvent& event) {
  const auto newest = cache_->newest();
  if (!newest || !newest->is_whole || newest->links >= kMemoryChain) return nullptr;
  auto opened = cache_->open(newest->id);
  if (!opened) {
    set_last_error(opened.error());
    return nullptr;
  }
  event.base = newest->step;
  return std::move(*opened);
}

Result<void> AgentRank::keep(const QueuedSave& queued, std::span<const ConstByteSpan> tensors,
                             const std::shared_ptr<const store::Blob>& blob, ProgressEvent& event) {
  const std::string name = fmt::format("step {} in memory", queued.staged.step);
  BITSNAP_ASSIGN(const std::shared_ptr<const Snapshot> snapshot,
                 restore::open_snapshot(store::blob_file(blob, name), {}, os::real_file_system()));
  store::CachedSnapshot entry{.step = queued.staged.step,
                              .id = snapshot->id(),
                              .blob = blob,
                              .needs = {},
                              .persisted = queued.staged.persist,
                              .attempt = queued.attempt};
  for (const BaseReference& base : snapshot->bases()) entry.needs.push_back(base.id);
  const bool has_chain = cache_->put(std::move(entry));
  // If nothing was quantized, the slot holds the complete state, and the snapshot can be read without its bases.
  auto chunks = std::make_shared<restore::DecodedState>(*snapshot, tensors, queued.mapping);
  const bool has_slot = chunks->is_complete() && cache_->holds(*blob) && slot_count() > 1;
  const bool is_whole = has_chain || has_slot;
  if (!is_whole && !queued.staged.persist) {
    return fail(ErrorKind::resource_exhausted,
                fmt::format("the compressed state has {} bytes, but the budget leaves only {} bytes for snapshots",
                            blob->size_bytes(), cache_->limits().bytes));
  }
  cache_->set_decoded(snapshot->id(), chunks);
  // One critical section: as soon as no slot is queued, the trainer may offer another arena.
  const std::lock_guard lock(mutex_);
  if (is_whole) ++totals_.saves;
  totals_.raw_bytes += event.raw_bytes;
  totals_.stored_bytes += event.stored_bytes;
  totals_.encode_us += event.encode_us;
  if (is_whole) {
    event.stage = Stage::memory;
    tell(event);
  }
  for (std::uint32_t i = 0; i < slots_.size(); ++i) {
    if (i != queued.staged.slot && slots_[i].state == SlotState::held) free_slot_locked(i);
  }
  // With two slots, the slot is held until the next state is encoded. It may be the base of the next save. If
  // this agent dies before publishing, the trainer stages the slot again with the next agent.
  if (slots_.size() < 2) {
    free_slot_locked(queued.staged.slot);
  } else {
    slots_[queued.staged.slot] = {.state = SlotState::held,
                                  .step = queued.staged.step,
                                  .id = snapshot->id(),
                                  .chunks = std::move(chunks),
                                  .file = has_slot ? blob : nullptr};
  }
  return {};
}

std::optional<AgentRank::SlotFile> AgentRank::slot_of(std::uint64_t step) const {
  const std::lock_guard lock(mutex_);
  for (std::uint32_t i = 0; i < slots_.size(); ++i) {
    const Slot& slot = slots_[i];
    if (slot.state != SlotState::held || slot.step != step || slot.file == nullptr) continue;
    return SlotFile{i, slot.id, slot.file};
  }
  return std::nullopt;
}

Result<AgentRank::FetchResult> AgentRank::gather_step(const FetchRequest& request) {
  const auto is_other = [&](const auto& kept) { return kept.first == request.step && kept.second != request.attempt; };
  if (!request.attempt.empty() && std::ranges::any_of(cache_->attempts(), is_other)) {
    return fail(ErrorKind::not_found, fmt::format("step {} of rank {} in the agent's memory belongs to another attempt",
                                                  request.step, rank_));
  }
  const std::optional<SlotFile> slot = request.whole ? std::nullopt : slot_of(request.step);
  const auto chain = slot ? std::nullopt : cache_->chain(request.step);
  if (!slot && !chain) {
    return fail(ErrorKind::not_found,
                fmt::format("step {} of rank {} is not in the agent's memory", request.step, rank_));
  }
  // A part of a blob that is copied into the shared memory.
  struct Piece {
    const store::Blob* blob = nullptr;
    std::uint64_t from = 0;
    std::uint64_t to = 0;  // offset in the shared memory
    std::uint64_t bytes = 0;
  };
  std::vector<Piece> pieces;
  Fetched fetched;
  std::uint64_t total = 0;
  if (slot) {
    // The payloads are left out: the slot has the decoded chunks. Untouched pages of shared memory cost nothing.
    fetched.slot = slot->slot;
    total = slot->file->size_bytes();
    const auto file = store::blob_file(slot->file, "snapshot in memory");
    BITSNAP_ASSIGN(const container::Footer footer, container::read_footer(*file));
    fetched.files.push_back({slot->id, 0, total});
    fetched.absent_bytes = footer.index_offset - container::kHeaderBytes;
    pieces.push_back({slot->file.get(), 0, 0, container::kHeaderBytes});
    pieces.push_back({slot->file.get(), footer.index_offset, footer.index_offset, total - footer.index_offset});
  } else {
    for (const store::BaseCache::Held& held : *chain) {
      fetched.files.push_back({held.id, total, held.blob->size_bytes()});
      pieces.push_back({held.blob.get(), 0, total, held.blob->size_bytes()});
      total += held.blob->size_bytes();
    }
  }
  BITSNAP_ASSIGN(os::SharedMemory memory, os::SharedMemory::create_for_writing_once("bitsnap-fetched", total));
  {
    BITSNAP_ASSIGN(const os::MappedMemory mapping, memory.map(os::MemoryAccess::read_write));
    const ByteSpan out = mapping.writable_bytes();
    for (const Piece& piece : pieces) {
      BITSNAP_TRY(mapping.populate(piece.to, piece.bytes));
      piece.blob->copy(piece.from,
                       out.subspan(static_cast<std::size_t>(piece.to), static_cast<std::size_t>(piece.bytes)));
    }
  }
  BITSNAP_TRY(memory.freeze());
  return FetchResult{std::move(fetched), std::move(memory)};
}

}  // namespace bitsnap::engine
