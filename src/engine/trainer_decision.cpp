// Whether a step is saved, if saves may be skipped: the agent decides for all its ranks, so that they save the same
// steps. Runs on the thread that saves.
#include <algorithm>

#include "engine/trainer.hpp"

namespace bitsnap {
namespace {

using engine::MessageKind;

// How long the training waits for an agent that does not answer, once until the agent speaks again.
constexpr std::int64_t kDecisionMs = 2'000;

}  // namespace

Result<bool> Engine::Impl::is_decided_to_save(std::uint64_t step) {
  if (options_.when_busy != WhenBusy::skip || options_.world_size == 1) return true;
  const Link link = this->link();
  {
    const std::lock_guard lock(mutex_);
    if (link == nullptr || !is_deciding_ || is_silent_) return true;
  }
  const engine::DecideRequest request{step, options_.slots};
  const auto answer = link->call(MessageKind::decide, serialize_body(request), MessageKind::decided,
                                 std::min(kDecisionMs, engine::wait_of(options_.wait_ms)), {}, options_.interrupted);
  const auto decided = answer ? engine::parse_body<engine::Decided>(answer->packet.body)
                              : Result<engine::Decided>(tl::unexpected(answer.error()));
  if (decided) return decided->save;
  if (decided.error().kind() == ErrorKind::cancelled) return tl::unexpected(decided.error());
  // Without a decision, this rank's slots decide. If other ranks then do otherwise, the step is not committed.
  const std::lock_guard lock(mutex_);
  is_silent_ = decided.error().kind() == ErrorKind::busy;
  return true;
}

}  // namespace bitsnap
