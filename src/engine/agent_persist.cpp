// Storing a state that only memory has, because trainers have other tensors of it than those that saved it, or another
// world size, and read the store. The encoder thread runs this; the writer thread publishes the result as it publishes
// every save.
#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/no_throw.hpp"
#include "base/try.hpp"
#include "engine/agent_rank.hpp"
#include "engine/slot_layout.hpp"
#include "store/store_impl.hpp"

namespace bitsnap::engine {

void AgentRank::persist_kept(const PersistRequest& request) {
  const QueuedSave queued{.staged = {.ticket = kept_ticket(request.step), .step = request.step},
                          .attempt = request.attempt,
                          .arena = nullptr,
                          .joined = job_.attempts.now()};
  Publication* const publication = queue_.begin_publication(queued);
  if (publication == nullptr) return;  // the rank ends
  ProgressEvent event;
  event.ticket = queued.staged.ticket;
  const Result<bool> encoded = no_throw("encoding", [&] { return encode_kept(request, *publication, event); });
  if (!encoded) {
    const std::lock_guard lock(mutex_);
    fail_save_locked(queued.staged.ticket, request.step,
                     Error(encoded.error()).within(fmt::format("storing step {} of rank {}", request.step, rank_)));
  }
  end_encoding(*publication, encoded && *encoded, event);
}

Result<bool> AgentRank::encode_kept(const PersistRequest& request, Publication& publication, ProgressEvent& event) {
  const std::uint64_t step = request.step;
  if (queue_.is_uncommitted(request)) return false;  // the shard is durable
  BITSNAP_ASSIGN(publication.store, store_.open());
  BITSNAP_ASSIGN(const std::vector<std::uint64_t> steps, publication.store->steps());
  if (std::ranges::binary_search(steps, step)) return false;
  const auto kept = memory_attempts();
  if (!std::ranges::binary_search(kept, std::pair(step, request.attempt))) {
    return fail(ErrorKind::not_found, fmt::format("attempt '{}' is not in the agent's memory", request.attempt));
  }
  BITSNAP_ASSIGN(const std::unique_lock<std::mutex> gate, begin_encoding(publication));
  const os::Stopwatch stopwatch;
  Store::Impl& impl = Store::Impl::of(*publication.store);
  store::PendingSave& save = *publication.save;
  const RunOptions run{.threads = job_.threads};
  if (const auto chain = cache_->chain(step)) {
    // The chunks that a slot holds are checked against their hashes: nothing that a trainer wrote there later is
    // stored.
    BITSNAP_ASSIGN(const std::shared_ptr<const Snapshot> snapshot, cache_->open(chain->front().id));
    BITSNAP_TRY(impl.encode(save, *snapshot, run));
  } else {
    const std::optional<HeldState> held = slot_of(step);
    if (!held) return fail(ErrorKind::not_found, "the state is not in the agent's memory any more");
    BITSNAP_ASSIGN(const State state, read_slot(held->arena->slot(held->slot), held->arena->slot_bytes));
    BITSNAP_TRY(impl.encode(save, state, run, store::Destination::disk));
    if (save.summary.id != held->state.id) {
      return fail(ErrorKind::corrupt, fmt::format("the slot has the state {}, expected {}", save.summary.id.to_hex(),
                                                  held->state.id.to_hex()));
    }
  }
  note_encoded(save, event);
  event.encode_us = elapsed_us(stopwatch);
  return true;
}

}  // namespace bitsnap::engine
