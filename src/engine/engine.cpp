// The public class Engine: forwards every call to Engine::Impl (trainer.hpp).
#include <bitsnap/engine.hpp>

#include <optional>
#include <span>
#include <utility>

#include "base/no_throw.hpp"
#include "engine/trainer.hpp"

namespace bitsnap {

Result<std::unique_ptr<Engine>> Engine::attach(const EngineOptions& options) {
  return no_throw("attach", [&]() -> Result<std::unique_ptr<Engine>> {
    auto impl = Impl::attach(options);
    if (!impl) return tl::unexpected(std::move(impl).error());
    return std::make_unique<Engine>(std::move(*impl));
  });
}

Engine::Engine(std::unique_ptr<Impl> impl) noexcept : impl_(std::move(impl)) {}
Engine::~Engine() {
  // A forked child has no receiving thread to join and must not say goodbye to the agent, so the Impl is leaked.
  if (impl_ == nullptr || !impl_->is_forked()) return;
  [[maybe_unused]] const Impl* const left_behind = impl_.release();
}

Result<SaveState> Engine::save(std::uint64_t step, const State& state, bool persist) {
  return no_throw("save", [&] { return impl_->save(step, state, persist); });
}

Result<void> Engine::reserve(const State& state) { return impl_->reserve(state); }

Result<SaveState> Engine::look(std::uint64_t ticket) const { return impl_->look(ticket); }

Result<SaveState> Engine::wait(std::uint64_t ticket, SaveStage stage, std::uint64_t timeout_ms, bool is_urgent) const {
  return no_throw("wait", [&] { return impl_->wait(ticket, stage, timeout_ms, is_urgent); });
}

Result<void> Engine::wait_all(std::uint64_t timeout_ms) const {
  return no_throw("wait", [&] { return impl_->wait_all(timeout_ms); });
}

std::vector<SaveState> Engine::take_failures() { return impl_->take_failures(); }

Result<std::vector<RestorableStep>> Engine::steps(std::optional<std::uint64_t> timeout_ms) const {
  return impl_->steps(timeout_ms);
}

Result<std::optional<std::uint64_t>> Engine::latest() const { return impl_->latest(); }

bool Engine::rotate(std::span<const std::uint64_t> removed, std::optional<std::uint64_t> keep_last) const {
  return impl_->rotate(removed, keep_last);
}

Result<void> Engine::persist_earlier(std::uint64_t step, const std::string& attempt,
                                     std::optional<std::uint64_t> timeout_ms) const {
  return impl_->persist_earlier(step, attempt, timeout_ms);
}

Result<Engine::Restored> Engine::restore(std::uint64_t step, const std::string& attempt,
                                         std::optional<std::uint64_t> timeout_ms, bool in_place) const {
  return impl_->restore(step, attempt, timeout_ms, in_place);
}

const std::string& Engine::path() const noexcept { return impl_->options().path; }

const std::string& Engine::job() const noexcept { return impl_->options().job.name; }

std::int64_t Engine::agent_process() const noexcept { return impl_->agent_process(); }

std::uint64_t Engine::arena_bytes() const noexcept { return impl_->arena_bytes(); }

std::string Engine::memory_note() const { return impl_->memory_note(); }

}  // namespace bitsnap
