// The engine's trainer side, and the agent as others see it: plain tuples that bitsnap/_engine_saves.py gives names.
//
// A handle may be closed while other threads are in calls: those end soon, with an error that says so, and the engine
// goes with the last of them. A call that waits looks at signals and at the handle being closed. In a child of a fork
// the engine refuses every call, and is never destroyed.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <bitsnap/engine.hpp>

#include "bindings.hpp"
#include "python_error.hpp"
#include "python_source.hpp"
#include "run_context.hpp"

namespace nb = nanobind;

namespace bitsnap::python {

namespace {

// While an agent is asked by somebody who has no handle, signals are looked at this often.
constexpr std::uint64_t kWaitSliceMs = 500;

struct HeldEngine {
  std::atomic<bool> is_closed = false;
  std::unique_ptr<Engine> engine;
};

// The innermost call of this thread, which the engine asks whether it is to end.
thread_local RunContext* current = nullptr;
// The engine that this thread is in a call of that holds it: a signal handler must not make another.
thread_local const HeldEngine* busy_with = nullptr;

template <typename T>
class Scoped {
 public:
  Scoped(T& place, T value) : place_(place), before_(std::exchange(place, value)) {}
  Scoped(const Scoped&) = delete;
  Scoped& operator=(const Scoped&) = delete;
  ~Scoped() { place_ = before_; }

 private:
  T& place_;
  T before_;
};

bool is_interrupted(const std::atomic<bool>& is_closed) {
  return is_closed.load(std::memory_order_relaxed) || (current != nullptr && !current->go_on());
}

[[noreturn]] void raise_closed(const std::string& path) {
  raise(Error(ErrorKind::invalid_argument, path + ": the checkpointer has been closed"));
}

struct PyEngine {
  std::shared_ptr<HeldEngine> held;  // nullptr: closed
  std::string path;
  std::string job;

  PyEngine(std::shared_ptr<HeldEngine> engine)
      : held(std::move(engine)), path(held->engine->path()), job(held->engine->job()) {}
  PyEngine(PyEngine&&) = default;
  PyEngine(const PyEngine&) = delete;
  PyEngine& operator=(const PyEngine&) = delete;
  ~PyEngine() { close(); }

  void close() {
    std::shared_ptr<HeldEngine> engine = std::exchange(held, nullptr);
    if (engine == nullptr) return;
    engine->is_closed.store(true, std::memory_order_relaxed);
    const nb::gil_scoped_release release;
    engine.reset();
  }

  // Runs work(engine) -> Result<T>. `is_exclusive`: such calls wait for each other.
  template <typename Work>
  auto call(RunContext& context, bool is_exclusive, Work&& work) const {
    const std::shared_ptr<HeldEngine> engine = held;
    if (engine == nullptr) raise_closed(path);
    if (is_exclusive && busy_with == engine.get()) {
      raise(Error(ErrorKind::busy, path + ": called by a signal handler during another call of the checkpointer"));
    }
    const Scoped<RunContext*> scope(current, &context);
    const Scoped<const HeldEngine*> exclusive(busy_with, is_exclusive ? engine.get() : busy_with);
    return context.call([&] {
      auto result = work(*engine->engine);
      if (!result && result.error().kind() == ErrorKind::cancelled && engine->is_closed.load()) {
        result =
            tl::unexpected(Error(ErrorKind::invalid_argument, path + ": the checkpointer was closed during this call"));
      }
      return result;
    });
  }
};

WhenBusy to_when_busy(const std::string& name) {
  if (name == "wait") return WhenBusy::wait;
  if (name == "skip") return WhenBusy::skip;
  raise(Error(ErrorKind::invalid_argument, "unknown when_busy '" + name + "', expected 'wait' or 'skip'"));
}

SaveStage to_stage(std::string_view name) {
  for (const SaveStage stage : {SaveStage::staged, SaveStage::memory, SaveStage::persisted}) {
    if (name == save_stage_name(stage)) return stage;
  }
  throw nb::value_error("the stage is 'staged', 'memory' or 'persisted'");
}

nb::dict to_dict(const SaveState& state) {
  nb::dict result;
  result["ticket"] = state.ticket;
  result["step"] = state.step;
  result["stage"] = save_stage_name(state.stage);
  result["persist"] = state.persist;
  result["has_reached_memory"] = state.has_reached_memory;
  result["error"] =
      state.error
          ? nb::object(nb::make_tuple(error_kind_name(state.error->kind()), text_of_message(state.error->message())))
          : nb::none();
  result["raw_bytes"] = state.raw_bytes;
  result["stored_bytes"] = state.stored_bytes;
  result["base"] = state.base ? nb::object(nb::int_(*state.base)) : nb::none();
  result["stall_seconds"] = state.stall_seconds;
  result["wait_seconds"] = state.wait_seconds;
  result["encode_seconds"] = state.encode_seconds;
  result["write_seconds"] = state.write_seconds;
  result["is_over"] = state.is_over();
  return result;
}

PyEngine attach(nb::bytes path, const std::string& job, std::uint32_t rank, std::uint32_t world_size,
                const std::string& session, const nb::dict& settings, std::optional<std::uint64_t> keep_last,
                std::optional<std::uint64_t> keep_every, std::uint64_t budget_bytes, std::uint32_t slots,
                std::uint32_t memory_snapshots, const std::string& when_busy, std::uint64_t wait_ms,
                std::uint64_t linger_ms, unsigned threads, unsigned agent_threads, nb::bytes agent_program,
                nb::bytes agent_log) {
  EngineOptions options;
  options.path = to_path(path);
  options.job = job;
  options.rank = rank;
  options.world_size = world_size;
  options.session = session;
  options.settings = to_settings(settings);
  options.retention = {.keep_last = keep_last, .keep_every = keep_every};
  options.budget_bytes = budget_bytes;
  options.slots = slots;
  options.memory_snapshots = memory_snapshots;
  options.when_busy = to_when_busy(when_busy);
  options.wait_ms = wait_ms;
  options.linger_ms = linger_ms;
  options.threads = usable_threads(threads);
  options.agent_threads = agent_threads;
  options.agent_program = to_path(agent_program);
  options.agent_log = to_path(agent_log);
  auto held = std::make_shared<HeldEngine>();
  // The engine goes before what it asks.
  options.interrupted = [engine = held.get()] { return is_interrupted(engine->is_closed); };
  RunContext context{nb::none()};
  const Scoped<RunContext*> scope(current, &context);
  held->engine = context.call([&] { return Engine::attach(options); });
  return {std::move(held)};
}

nb::dict save(const PyEngine& self, std::uint64_t step, nb::sequence tensors, nb::object tree,
              std::vector<std::pair<std::string, std::string>> metadata, bool persist) {
  RunContext context{nb::none()};
  const State state = state_from_python(std::move(tensors), std::move(tree), std::move(metadata), context);
  return to_dict(self.call(context, true, [&](Engine& engine) { return engine.save(step, state, persist); }));
}

void reserve(const PyEngine& self, nb::sequence tensors, nb::object tree,
             std::vector<std::pair<std::string, std::string>> metadata) {
  RunContext context{nb::none()};
  const State state = state_from_python(std::move(tensors), std::move(tree), std::move(metadata), context);
  self.call(context, true, [&](Engine& engine) { return engine.reserve(state); });
}

nb::dict look(const PyEngine& self, std::uint64_t ticket) {
  RunContext context{nb::none()};
  return to_dict(self.call(context, false, [&](Engine& engine) { return engine.look(ticket); }));
}

nb::dict wait(const PyEngine& self, std::uint64_t ticket, std::string_view stage, std::uint64_t timeout_ms) {
  const SaveStage wanted = to_stage(stage);
  RunContext context{nb::none()};
  return to_dict(self.call(context, false, [&](Engine& engine) { return engine.wait(ticket, wanted, timeout_ms); }));
}

void wait_all(const PyEngine& self, std::uint64_t timeout_ms) {
  RunContext context{nb::none()};
  self.call(context, false, [&](Engine& engine) { return engine.wait_all(timeout_ms); });
}

nb::list take_failures(const PyEngine& self) {
  RunContext context{nb::none()};
  const auto failures = self.call(
      context, false, [](Engine& engine) -> Result<std::vector<SaveState>> { return engine.take_failures(); });
  nb::list result;
  for (const SaveState& failure : failures) result.append(to_dict(failure));
  return result;
}

// (step, in memory, everywhere, in the store, attempt) each.
nb::list steps(const PyEngine& self) {
  RunContext context{nb::none()};
  const auto found = self.call(context, true, [](Engine& engine) { return engine.steps(); });
  nb::list result;
  for (const RestorableStep& step : found) {
    result.append(nb::make_tuple(step.step, step.in_memory, step.everywhere, step.in_store, step.attempt));
  }
  return result;
}

std::optional<std::uint64_t> newest_common_step(const PyEngine& self) {
  RunContext context{nb::none()};
  return self.call(context, true, [](Engine& engine) { return engine.newest_common_step(); });
}

// (snapshot, whether from memory, (kind, message) of why it is not although it should be, or None).
nb::tuple restore(const PyEngine& self, std::uint64_t step, const std::string& attempt) {
  RunContext context{nb::none()};
  Engine::Restored restored = self.call(context, true, [&](Engine& engine) { return engine.restore(step, attempt); });
  const auto& error = restored.memory_error;
  return nb::make_tuple(
      PySnapshot{std::move(restored.snapshot)}, restored.from_memory,
      error ? nb::object(nb::make_tuple(error_kind_name(error->kind()), text_of_message(error->message())))
            : nb::none());
}

template <typename Number>
Number number_of(const PyEngine& self, Number (Engine::*getter)() const noexcept) {
  const std::shared_ptr<HeldEngine> engine = self.held;
  if (engine == nullptr) raise_closed(self.path);
  const nb::gil_scoped_release release;
  return (engine->engine.get()->*getter)();
}

// work(milliseconds, whether it is the first time) -> Result<T>, again and again while it is busy and time is left,
// with a look at signals in between.
template <typename Work>
auto sliced(std::uint64_t timeout_ms, Work&& work) {
  RunContext context{nb::none()};
  const auto start = std::chrono::steady_clock::now();
  return context.call([&] {
    for (bool is_first = true;; is_first = false) {
      const auto passed = std::chrono::steady_clock::now() - start;
      const auto passed_ms = static_cast<std::uint64_t>(passed / std::chrono::milliseconds(1));
      const std::uint64_t left_ms = timeout_ms - std::min(timeout_ms, passed_ms);
      auto result = work(std::min(left_ms, kWaitSliceMs), is_first);
      const bool is_over = result || result.error().kind() != ErrorKind::busy || left_ms <= kWaitSliceMs;
      if (is_over || !context.go_on()) return result;
    }
  });
}

}  // namespace

void bind_engine(nb::module_& module) {
  nb::class_<PyEngine>(module, "Engine")
      .def_static("attach", &attach, nb::arg("path"), nb::kw_only(), nb::arg("job"), nb::arg("rank"),
                  nb::arg("world_size"), nb::arg("session"), nb::arg("settings"), nb::arg("keep_last").none(),
                  nb::arg("keep_every").none(), nb::arg("budget_bytes"), nb::arg("slots"), nb::arg("memory_snapshots"),
                  nb::arg("when_busy"), nb::arg("wait_ms"), nb::arg("linger_ms"), nb::arg("threads"),
                  nb::arg("agent_threads"), nb::arg("agent_program"), nb::arg("agent_log"))
      .def("close", &PyEngine::close)
      .def_prop_ro("is_closed", [](const PyEngine& self) { return self.held == nullptr; })
      .def_prop_ro("path", [](const PyEngine& self) { return nb::bytes(self.path.data(), self.path.size()); })
      .def_prop_ro("job", [](const PyEngine& self) { return self.job; })
      .def_prop_ro("agent_process", [](const PyEngine& self) { return number_of(self, &Engine::agent_process); })
      .def_prop_ro("arena_bytes", [](const PyEngine& self) { return number_of(self, &Engine::arena_bytes); })
      .def("save", &save, nb::arg("step"), nb::arg("tensors"), nb::arg("tree").none(), nb::arg("metadata"),
           nb::arg("persist"))
      .def("reserve", &reserve, nb::arg("tensors"), nb::arg("tree").none(), nb::arg("metadata"))
      .def("look", &look, nb::arg("ticket"))
      .def("wait", &wait, nb::arg("ticket"), nb::arg("stage"), nb::arg("timeout_ms"))
      .def("wait_all", &wait_all, nb::arg("timeout_ms"))
      .def("take_failures", &take_failures)
      .def("steps", &steps)
      .def("newest_common_step", &newest_common_step)
      .def("restore", &restore, nb::arg("step"), nb::arg("attempt"));

  module.def(
      "agent_report",
      [](const std::string& job, std::uint64_t timeout_ms) {
        return sliced(timeout_ms, [&](std::uint64_t slice_ms, bool) { return agent_report(job, slice_ms); });
      },
      nb::arg("job"), nb::arg("timeout_ms"));
  module.def(
      "stop_agent",
      [](const std::string& job, bool abandon, std::uint64_t timeout_ms) {
        sliced(timeout_ms, [&](std::uint64_t slice_ms, bool is_first) {
          Result<void> stopped = stop_agent(job, abandon, slice_ms);
          // It ended between two slices.
          if (!stopped && !is_first && stopped.error().kind() == ErrorKind::not_found) stopped = {};
          return stopped;
        });
      },
      nb::arg("job"), nb::arg("abandon"), nb::arg("timeout_ms"));
  module.def("default_job", [](nb::bytes path) { return default_job(to_path(path)); }, nb::arg("path"));
}

}  // namespace bitsnap::python
