// What a restore needs of the memory: the encoder thread copies snapshots for trainers that fetch them, and gives
// memory back to trainers that have too little.
#include <algorithm>

#include <fmt/format.h>

#include "base/try.hpp"
#include "container/file_reader.hpp"
#include "engine/agent_rank.hpp"
#include "engine/slot_layout.hpp"

namespace bitsnap::engine {

std::optional<AgentRank::HeldState> AgentRank::slot_of(std::uint64_t step) const {
  const std::lock_guard lock(mutex_);
  const auto slot = slots_.restorable();
  if (!slot || slots_.state(*slot).step != step) return std::nullopt;
  return HeldState{*slot, slots_.state(*slot), slots_.arena()};
}

Result<FetchResult> AgentRank::gather_step(const FetchRequest& request) {
  if (request.reads_store) {
    give_back_stored(request.step, request.attempt);
    return fail(ErrorKind::not_found, fmt::format("the trainer reads step {} from the store", request.step));
  }
  const auto is_other = [&](const auto& kept) { return kept.first == request.step && kept.second != request.attempt; };
  if (!request.attempt.empty() && std::ranges::any_of(memory_attempts(), is_other)) {
    return fail(ErrorKind::not_found, fmt::format("step {} of rank {} in the agent's memory belongs to another attempt",
                                                  request.step, rank_));
  }
  const std::optional<HeldState> slot = request.whole ? std::nullopt : slot_of(request.step);
  const auto chain = slot ? std::nullopt : cache_->chain(request.step);
  if (!slot && !chain) {
    return fail(ErrorKind::not_found,
                fmt::format("step {} of rank {} is not in the agent's memory", request.step, rank_));
  }
  // Bytes that are copied into the shared memory.
  struct Piece {
    std::uint64_t to = 0;  // offset in the shared memory
    ConstByteSpan bytes;
  };
  std::vector<Piece> pieces;
  Fetched fetched;
  std::uint64_t total = 0;
  const std::uint64_t state_bytes = slot ? slot->state.raw_bytes : chain->front().raw_bytes;
  std::uint64_t needed = (request.in_place ? 0 : state_bytes) + coding_bytes(request.threads, state_bytes);
  if (slot) {
    // The payloads are left out: the slot has the decoded chunks. Untouched pages of shared memory cost nothing.
    const SnapshotFrame& frame = *slot->state.frame;
    fetched.slot = slot->slot;
    total = frame.file_bytes;
    fetched.files.push_back({slot->state.id, 0, total});
    fetched.absent_bytes = frame.index_offset - container::kHeaderBytes;
    pieces.push_back({0, frame.header});
    pieces.push_back({frame.index_offset, frame.index});
  } else {
    for (const store::BaseCache::Held& held : *chain) {
      fetched.files.push_back({held.id, total, held.blob->size_bytes()});
      for (std::size_t i = 0; i < held.blob->pieces(); ++i) {
        pieces.push_back({total, held.blob->piece(i)});
        total += held.blob->piece(i).size();
      }
    }
  }
  for (const Piece& piece : pieces) needed += piece.bytes.size();
  if (request.available_bytes != 0 && needed > request.available_bytes) {
    cache_->give_back(slot_of(request.step) ? std::nullopt : std::optional(request.step));
    return fail(ErrorKind::resource_exhausted,
                fmt::format("restoring step {} from memory needs {} bytes, but only {} are available", request.step,
                            needed, request.available_bytes));
  }
  BITSNAP_ASSIGN(os::SharedMemory memory, os::SharedMemory::create_for_writing_once("bitsnap-fetched", total));
  {
    BITSNAP_ASSIGN(const os::MappedMemory mapping, memory.map(os::MemoryAccess::read_write));
    const ByteSpan out = mapping.writable_bytes();
    for (const Piece& piece : pieces) {
      BITSNAP_TRY(mapping.populate(piece.to, piece.bytes.size()));
      std::ranges::copy(piece.bytes, out.subspan(static_cast<std::size_t>(piece.to)).begin());
    }
  }
  BITSNAP_TRY(memory.freeze());
  return FetchResult{std::move(fetched), std::move(memory)};
}

// Free slots are the trainer's, which gives their pages back itself.
void AgentRank::give_back_stored(std::uint64_t step, const std::string& attempt) {
  if (store_.is_committed(step, attempt)) {
    const std::lock_guard lock(mutex_);
    const auto held = slots_.held();
    if (held && slots_.state(*held).step == step && slots_.state(*held).attempt == attempt) free_slot_locked(*held);
  }
  // The trainer may replace the arena now, so a slot is no place where a state is safe.
  cache_->set_restorable(std::nullopt);
  cache_->give_back(std::nullopt);
}

}  // namespace bitsnap::engine
