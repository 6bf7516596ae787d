// The trainer's side of the engine, and calls to an agent without a handle.
//
// A handle may be closed while other threads are in calls: these calls end soon with an error, and the last one
// destroys the engine. A call that waits checks for signals and for the handle being closed. In the child of a fork,
// the engine refuses every call and is never destroyed.
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <bitsnap/engine.hpp>

#include "bindings.hpp"
#include "gil.hpp"
#include "python_error.hpp"
#include "python_source.hpp"
#include "report_class.hpp"
#include "run_context.hpp"

namespace nb = nanobind;

namespace bitsnap::python {

namespace {

// A call to an agent without a handle checks for signals this often.
constexpr std::uint64_t kWaitSliceMs = 500;

struct HeldEngine {
  std::atomic<bool> is_closed = false;
  std::unique_ptr<Engine> engine;
};

bool is_interrupted(const std::atomic<bool>& is_closed) {
  RunContext* const context = RunContext::innermost();
  return is_closed.load(std::memory_order_relaxed) || (context != nullptr && !context->go_on());
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
    const GilRelease release;
    engine.reset();
  }

  // Runs work(engine) -> Result<T> and raises its error.
  template <typename Work>
  auto call(RunContext& context, Work&& work) const {
    const std::shared_ptr<HeldEngine> engine = in_use();
    return context.call([&] { return run(context, *engine, work); });
  }

  template <typename Work>
  auto call(Work&& work) const {
    RunContext context{nb::none()};
    return call(context, work);
  }
  // A call that takes turns with others of its kind.
  template <typename Work>
  auto call_in_turn(Work&& work) const {
    RunContext context(nb::none(), turn());
    return call(context, work);
  }

  // What exclusive calls take, which wait for each other.
  [[nodiscard]] std::string turn() const { return std::to_string(reinterpret_cast<std::uintptr_t>(held.get())); }

  [[nodiscard]] std::shared_ptr<HeldEngine> in_use() const {
    if (held == nullptr) raise(Error(ErrorKind::invalid_argument, path + ": the checkpointer has been closed"));
    return held;
  }

  // The same without the GIL, for a handle that the caller keeps.
  template <typename Work>
  auto run(const RunContext& context, HeldEngine& engine, Work&& work) const -> decltype(work(*engine.engine)) {
    if (context.waits_for_itself()) {
      return tl::unexpected(
          Error(ErrorKind::busy,
                path + ": called by a signal handler or a callback during another call of the checkpointer"));
    }
    auto result = work(*engine.engine);
    if (!result && result.error().kind() == ErrorKind::cancelled && engine.is_closed.load()) {
      return tl::unexpected(
          Error(ErrorKind::invalid_argument, path + ": the checkpointer was closed during this call"));
    }
    return result;
  }
};

SaveStage to_stage(std::string_view name) {
  for (const SaveStage stage : {SaveStage::staged, SaveStage::memory, SaveStage::persisted}) {
    if (name == save_stage_name(stage)) return stage;
  }
  throw nb::value_error("the stage is 'staged', 'memory' or 'persisted'");
}

PyEngine attach(EngineOptions options) {
  options.threads = usable_threads(options.threads);
  auto held = std::make_shared<HeldEngine>();
  // The engine is destroyed before `is_closed`, which it reads.
  options.interrupted = [engine = held.get()] { return is_interrupted(engine->is_closed); };
  RunContext context{nb::none()};
  held->engine = context.call([&] { return Engine::attach(options); });
  return {std::move(held)};
}

// A failure does not end a training: the result has the error, except for invalid arguments, which the caller can fix.
SaveState save_step(const PyEngine& self, std::uint64_t step, const NativeState& given, bool persist) {
  RunContext context(nb::none(), self.turn());
  const State state = state_from_python(given, context);
  const std::shared_ptr<HeldEngine> held = self.in_use();
  return context.call([&] {
    Result<SaveState> saved =
        self.run(context, *held, [&](Engine& engine) { return engine.save(step, state, persist); });
    if (saved || saved.error().kind() == ErrorKind::invalid_argument) return saved;
    return Result<SaveState>(
        SaveState{.step = step, .stage = SaveStage::failed, .persist = persist, .error = std::move(saved).error()});
  });
}

void reserve(const PyEngine& self, const NativeState& given) {
  RunContext context(nb::none(), self.turn());
  const State state = state_from_python(given, context);
  self.call(context, [&](Engine& engine) { return engine.reserve(state); });
}

SaveState look(const PyEngine& self, std::uint64_t ticket) {
  return self.call([&](Engine& engine) { return engine.look(ticket); });
}

SaveState wait(const PyEngine& self, std::uint64_t ticket, std::string_view stage, std::uint64_t timeout_ms,
               bool is_urgent) {
  const SaveStage wanted = to_stage(stage);
  return self.call([&](Engine& engine) { return engine.wait(ticket, wanted, timeout_ms, is_urgent); });
}

void wait_all(const PyEngine& self, std::uint64_t timeout_ms) {
  self.call([&](Engine& engine) { return engine.wait_all(timeout_ms); });
}

std::vector<RestorableStep> steps(const PyEngine& self, std::uint64_t timeout_ms) {
  return self.call_in_turn([&](Engine& engine) { return engine.steps(timeout_ms); });
}

Engine::Restored restore(const PyEngine& self, std::uint64_t step, const std::string& attempt, std::uint64_t timeout_ms,
                         bool in_place) {
  return self.call_in_turn([&](Engine& engine) { return engine.restore(step, attempt, timeout_ms, in_place); });
}

bool rotate(const PyEngine& self, const std::vector<std::uint64_t>& removed, std::optional<std::uint64_t> keep_last) {
  const std::shared_ptr<HeldEngine> engine = self.in_use();
  const GilRelease release;
  return engine->engine->rotate(removed, keep_last);
}

void persist_earlier(const PyEngine& self, std::uint64_t step, const std::string& attempt, std::uint64_t timeout_ms) {
  self.call_in_turn([&](Engine& engine) { return engine.persist_earlier(step, attempt, timeout_ms); });
}

template <typename Number>
Number number_of(const PyEngine& self, Number (Engine::*getter)() const noexcept) {
  const std::shared_ptr<HeldEngine> engine = self.in_use();
  const GilRelease release;
  return (engine->engine.get()->*getter)();
}

void bind_save_state(nb::module_& module) {
  ReportClass<SaveState>(module, "SaveState", "One save of a Checkpointer: how far it came, and what it cost.")
      .field("step", &SaveState::step)
      .field(
          "stage", [](const SaveState& self) { return save_stage_name(self.stage); },
          nb::for_getter(nb::sig("def stage(self, /) -> typing.Literal['skipped', 'staged', 'memory', 'persisted', "
                                 "'failed']")),
          R"("skipped", "staged", "memory", "persisted" or "failed".)")
      .field("error", &SaveState::error, "Why it failed.")
      .field("raw_bytes", &SaveState::raw_bytes, "Size of the state in bytes.")
      .field("stored_bytes", &SaveState::stored_bytes, "Compressed size in bytes; 0 before the stage \"memory\".")
      .field("base", &SaveState::base, "The step that it is coded against.")
      .field("stall_seconds", &SaveState::stall_seconds, "How long save() took, for which the training waited.")
      .field("wait_seconds", &SaveState::wait_seconds, "The part of it that was waiting for a free slot.")
      .field("encode_seconds", &SaveState::encode_seconds)
      .field("write_seconds", &SaveState::write_seconds)
      .computed(
          "ticket", [](const SaveState& self) { return self.ticket; }, "0: nothing was staged.")
      .computed(
          "persist", [](const SaveState& self) { return self.persist; }, "Whether it goes to the store.")
      .computed("has_reached_memory", [](const SaveState& self) { return self.has_reached_memory; })
      .computed("is_over", &SaveState::is_over, "Whether it makes no further progress.")
      .computed("ratio", &ratio_of<SaveState>, "Raw size divided by stored size.")
      .native()
      .def_static(
          "failed",
          [](std::uint64_t step, bool persist, std::string message, bool is_argument) {
            const ErrorKind kind = is_argument ? ErrorKind::invalid_argument : ErrorKind::internal;
            return SaveState{
                .step = step, .stage = SaveStage::failed, .persist = persist, .error = Error(kind, std::move(message))};
          },
          nb::arg("step"), nb::arg("persist"), nb::arg("message"), nb::kw_only(), nb::arg("is_argument"))
      .def(
          "with_stall",
          [](SaveState self, double seconds) {
            self.stall_seconds = seconds;
            return self;
          },
          nb::arg("seconds"));

  ReportClass<RestorableStep>(module, "RestorableStep", "A step that can be restored.")
      .field("step", &RestorableStep::step)
      .field("in_memory", &RestorableStep::in_memory, "The agent has the state of this rank.")
      .field("everywhere", &RestorableStep::everywhere, "The agent has the state of every rank.")
      .field("in_store", &RestorableStep::in_store)
      .field("attempt", &RestorableStep::attempt, "The attempt that the state in memory is a part of.")
      .field("earlier_ranks", &RestorableStep::earlier_ranks,
             "If not 0, the number of ranks of an earlier job that saved the step to memory.")
      .field("held_ranks", &RestorableStep::held_ranks, "Those of them whose states the agent has.");
  ReportClass<Engine::Restored>(module, "RestoredSnapshot", "An open snapshot of a restored step.")
      .field("snapshot", [](const Engine::Restored& self) { return PySnapshot{self.snapshot}; })
      .field("from_memory", &Engine::Restored::from_memory)
      .field("memory_error", &Engine::Restored::memory_error, "Why it is not from memory although it should be.");
}

}  // namespace

void bind_engine(nb::module_& module) {
  bind_save_state(module);
  nb::class_<PyEngine>(module, "Engine")
      .def_static("attach", &attach, nb::arg("options"))
      .def("close", &PyEngine::close)
      .def_prop_ro("is_closed", [](const PyEngine& self) { return self.held == nullptr; })
      .def_prop_ro("path", [](const PyEngine& self) { return nb::bytes(self.path.data(), self.path.size()); })
      .def_prop_ro("job", [](const PyEngine& self) { return self.job; })
      .def_prop_ro("agent_process", [](const PyEngine& self) { return number_of(self, &Engine::agent_process); })
      .def_prop_ro("arena_bytes", [](const PyEngine& self) { return number_of(self, &Engine::arena_bytes); })
      .def_prop_ro("memory_note",
                   [](const PyEngine& self) {
                     const std::shared_ptr<HeldEngine> held = self.in_use();
                     const GilRelease release;  // a call of the engine may hold its lock
                     return held->engine->memory_note();
                   })
      .def("save", &save_step, nb::arg("step"), nb::arg("state"), nb::arg("persist"))
      .def("reserve", &reserve, nb::arg("state"))
      .def("look", &look, nb::arg("ticket"))
      .def("wait", &wait, nb::arg("ticket"), nb::arg("stage"), nb::arg("timeout_ms"), nb::kw_only(),
           nb::arg("is_urgent") = true)
      .def("wait_all", &wait_all, nb::arg("timeout_ms"))
      .def("steps", &steps, nb::arg("timeout_ms"))
      .def("rotate", &rotate, nb::arg("removed"), nb::arg("keep_last").none())
      .def("persist_earlier", &persist_earlier, nb::arg("step"), nb::arg("attempt"), nb::arg("timeout_ms"))
      .def("restore", &restore, nb::arg("step"), nb::arg("attempt"), nb::arg("timeout_ms"), nb::kw_only(),
           nb::arg("in_place"));

  module.def(
      "agent_status",
      [](const std::string& job, std::uint64_t timeout_ms) {
        return call_in_slices(timeout_ms, kWaitSliceMs,
                              [&](std::uint64_t slice_ms, bool) { return agent_status(job, slice_ms); });
      },
      nb::arg("job"), nb::arg("timeout_ms"));
  module.def(
      "stop_agent",
      [](const std::string& job, bool abandon, std::uint64_t timeout_ms) {
        call_in_slices(timeout_ms, kWaitSliceMs, [&](std::uint64_t slice_ms, bool is_first) {
          Result<void> stopped = stop_agent(job, abandon, slice_ms);
          // The agent ended between two slices.
          if (!stopped && !is_first && stopped.error().kind() == ErrorKind::not_found) stopped = {};
          return stopped;
        });
      },
      nb::arg("job"), nb::arg("abandon"), nb::arg("timeout_ms"));
  module.def("default_job", [](nb::bytes path) { return default_job(to_path(path)); }, nb::arg("path"));
}

}  // namespace bitsnap::python
