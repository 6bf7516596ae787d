// What the encoding thread does: from a slot to a snapshot in memory, and from there to whoever fetches it.
#include <algorithm>

#include <fmt/format.h>

#include "base/no_throw.hpp"
#include "base/try.hpp"
#include "container/file_reader.hpp"
#include "engine/agent_rank.hpp"
#include "engine/slot_layout.hpp"
#include "record/base_finder.hpp"
#include "record/snapshot_recorder.hpp"
#include "restore/open_snapshot.hpp"

namespace bitsnap::engine {
namespace {

// Snapshots in memory that may have to be decoded one after another before the newest can be.
constexpr std::uint32_t kMaxLinks = 8;

}  // namespace

void AgentRank::encode(Job job) {
  auto state = read_slot(job.slot, job.staged.bytes);
  if (!state) {
    // The slot first: who hears that a save has failed may hand over another arena.
    free_slot(job.staged.slot);
    fail_job(job, std::move(state).error().within(fmt::format("step {}", job.staged.step)));
    return;
  }
  std::vector<ConstByteSpan> tensors = tensor_bytes(*state);
  if (job.staged.persist) {
    std::unique_lock lock(mutex_);
    // The writer may still be busy with the one before.
    changed_.wait(lock, [&] { return persisting_ == nullptr || is_ending_; });
    if (is_ending_) return;
    persisting_ = std::make_unique<Persisting>(
        Persisting{.job = std::move(job), .state = std::move(*state), .tensors = std::move(tensors), .event = {}});
    const Persisting* const mine = persisting_.get();
    changed_.notify_all();
    changed_.wait(lock, [&] { return persisting_.get() != mine || mine->is_encoded; });
    return;
  }
  ProgressEvent event;
  event.ticket = job.staged.ticket;
  const auto finish = [&]() -> Result<void> {
    BITSNAP_ASSIGN(std::shared_ptr<const Blob> blob, encode_for_memory(job, *state, event));
    event.stored_bytes = blob->size_bytes();
    BITSNAP_TRY(enter(job, tensors, blob, event));
    return {};
  };
  Result<void> finished = finish();
  mirror_.forget_all_but([&](const Blob& blob) { return tier_.holds(blob); });
  if (!finished) {
    free_slot(job.staged.slot);
    fail_job(job, std::move(finished).error().within(fmt::format("step {}", job.staged.step)));
  }
}

Result<std::shared_ptr<const Blob>> AgentRank::encode_for_memory(const Job& job, const State& state,
                                                                 ProgressEvent& event) {
  return no_throw("encoding", [&]() -> Result<std::shared_ptr<const Blob>> {
    SaveOptions options = memory_options();
    options.max_depth = kMaxLinks;
    const std::unique_lock gate(job_.encode_gate);
    const os::Stopwatch stopwatch;
    std::optional<record::SingleBase> base;
    if (std::shared_ptr<const Base> newest = memory_base(event)) base.emplace(std::move(newest));
    BlobWriter writer(fmt::format("step {} in memory", job.staged.step));
    BITSNAP_ASSIGN(const record::RecordSummary recorded,
                   record::record_snapshot(state, options, base ? &*base : nullptr, nullptr, writer, *executor_));
    BITSNAP_TRY(writer.close());
    event.raw_bytes = recorded.summary.raw_bytes;
    event.encode_us = elapsed_us(stopwatch);
    if (recorded.references.empty()) event.base.reset();
    return writer.blob();
  });
}

std::shared_ptr<const Base> AgentRank::memory_base(ProgressEvent& event) {
  const auto newest = tier_.newest();
  if (!newest || !newest->is_whole || newest->links >= kMaxLinks) return nullptr;
  auto opened = tier_.open(newest->id);
  if (!opened) {
    note_error(opened.error());
    return nullptr;
  }
  warm_up(**opened);
  event.base = newest->step;
  return std::move(*opened);
}

std::optional<std::uint64_t> AgentRank::held_step() const {
  if (const auto newest = tier_.newest()) return newest->step;
  const std::lock_guard lock(mutex_);
  const auto held = std::ranges::find(slots_, SlotState::held, &Slot::state);
  return held == slots_.end() ? std::nullopt : std::optional(held->step);
}

void AgentRank::warm_up(const Snapshot& snapshot) const {
  const std::lock_guard lock(mutex_);
  for (const Slot& slot : slots_) {
    if (slot.state == SlotState::held && slot.id == snapshot.id()) restore::offer_warm_chunks(snapshot, slot.chunks);
  }
}

Result<std::shared_ptr<const Snapshot>> AgentRank::enter(const Job& job, std::span<const ConstByteSpan> tensors,
                                                         const std::shared_ptr<const Blob>& blob,
                                                         ProgressEvent& event) {
  BITSNAP_ASSIGN(std::shared_ptr<const Snapshot> snapshot,
                 restore::open_snapshot(blob_file(blob, fmt::format("step {} in memory", job.staged.step)), {},
                                        os::real_file_system()));
  MemorySnapshot entry{.step = job.staged.step,
                       .id = snapshot->id(),
                       .blob = blob,
                       .needs = {},
                       .persisted = false,
                       .attempt = job.attempt};
  for (const BaseReference& base : snapshot->bases()) entry.needs.push_back(base.id);
  entry.persisted = job.staged.persist;
  const bool has_chain = tier_.put(std::move(entry));
  // Where the slot has all of the state, as without loss, what that is coded against is not needed to have it.
  auto chunks = std::make_shared<SlotChunks>(*snapshot, tensors, job.mapping);
  const bool has_slot = chunks->is_complete() && tier_.holds(*blob) && slot_count() > 1;
  const bool is_whole = has_chain || has_slot;
  if (!is_whole && !job.staged.persist) {
    return fail(ErrorKind::resource_exhausted,
                fmt::format("{} bytes compressed do not fit into what the budget leaves for snapshots, {} bytes",
                            blob->size_bytes(), [&] {
                              const std::lock_guard lock(mutex_);
                              return memory_limits().bytes;
                            }()));
  }
  // All at once: from the moment that no slot is being worked on the trainer may hand over another arena.
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
    if (i != job.staged.slot && slots_[i].state == SlotState::held) free_slot_locked(i);
  }
  // The slot is the base of the next one, as long as there is another to stage that in; and until then it can be handed
  // to another agent, should this one die before it has written.
  if (slots_.size() < 2) {
    free_slot_locked(job.staged.slot);
  } else {
    slots_[job.staged.slot] = {.state = SlotState::held,
                               .step = job.staged.step,
                               .id = snapshot->id(),
                               .chunks = std::move(chunks),
                               .file = has_slot ? blob : nullptr};
  }
  return snapshot;
}

void AgentRank::gather(FetchJob fetch) {
  fetch.done(no_throw("fetch", [&] { return gather_step(fetch.request); }));
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
  if (!request.attempt.empty() && std::ranges::any_of(tier_.attempts(), is_other)) {
    return fail(
        ErrorKind::not_found,
        fmt::format("step {} of rank {} is in the agent's memory as it was in another life", request.step, rank_));
  }
  const std::optional<SlotFile> slot = request.whole ? std::nullopt : slot_of(request.step);
  const auto chain = slot ? std::nullopt : tier_.chain(request.step);
  if (!slot && !chain) {
    return fail(ErrorKind::not_found,
                fmt::format("step {} of rank {} is not in the agent's memory", request.step, rank_));
  }
  // What goes into the memory: pieces of blobs.
  struct Piece {
    const Blob* blob = nullptr;
    std::uint64_t from = 0;
    std::uint64_t to = 0;  // in the memory
    std::uint64_t bytes = 0;
  };
  std::vector<Piece> pieces;
  Fetched fetched;
  std::uint64_t total = 0;
  if (slot) {
    // The slot has what the payloads say, and memory that was never touched costs nothing.
    fetched.slot = slot->slot;
    total = slot->file->size_bytes();
    const auto file = blob_file(slot->file, "snapshot in memory");
    BITSNAP_ASSIGN(const container::Footer footer, container::read_footer(*file));
    fetched.files.push_back({slot->id, 0, total});
    fetched.absent_bytes = footer.index_offset - container::kHeaderBytes;
    pieces.push_back({slot->file.get(), 0, 0, container::kHeaderBytes});
    pieces.push_back({slot->file.get(), footer.index_offset, footer.index_offset, total - footer.index_offset});
  } else {
    for (const MemoryTier::Held& held : *chain) {
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
