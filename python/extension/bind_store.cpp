// Stores. A handle may be closed while other threads are in calls; the last call destroys it.
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <tuple>
#include <utility>
#include <vector>

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <bitsnap/folder.hpp>
#include <bitsnap/object_store.hpp>
#include <bitsnap/store.hpp>

#include "bindings.hpp"
#include "gil.hpp"
#include "python_error.hpp"
#include "python_source.hpp"
#include "run_context.hpp"

namespace nb = nanobind;

namespace bitsnap::python {

namespace {

// Waiting for the lock checks for signals this often.
constexpr std::uint64_t kLockSliceMs = 100;

// Closing a store in a bucket waits for a thread that needs the GIL.
struct WithoutGil {
  std::unique_ptr<Store> store;
  WithoutGil(const WithoutGil&) = delete;
  WithoutGil& operator=(const WithoutGil&) = delete;
  explicit WithoutGil(std::unique_ptr<Store> opened) noexcept : store(std::move(opened)) {}
  ~WithoutGil() {
    if (PyGILState_Check() == 0) return;
    const GilRelease release;
    store.reset();
  }
};

std::shared_ptr<Store> destroyed_without_gil(std::unique_ptr<Store> store) {
  const auto held = std::make_shared<WithoutGil>(std::move(store));
  return {held, held->store.get()};
}

struct PyStore {
  std::shared_ptr<Store> store;  // nullptr: closed
  std::string path;
  std::string real_path;  // what writing calls take: no two of them run at once, with whichever handles

  [[nodiscard]] std::shared_ptr<Store> in_use() const {
    if (store == nullptr) raise(Error(ErrorKind::invalid_argument, path + ": the store has been closed"));
    return store;
  }

  // Runs work(store) -> Result<T> without the GIL; returns T or raises.
  template <typename Work>
  auto call(RunContext& context, Work&& work) const {
    return context.call([held = in_use(), &work] { return std::invoke(work, *held); });
  }
  template <typename Work>
  auto call(Work&& work) const {
    RunContext context{nb::none()};
    return call(context, work);
  }
  template <typename Work>
  auto write(Work&& work) const {
    RunContext context(nb::none(), real_path);
    return call(context, work);
  }
};

nb::bytes to_bytes(const std::string& name) { return nb::bytes(name.data(), name.size()); }

// The message says that the checkpoint is saved and that pruning failed.
Checkpoint raise_prune_error(Checkpoint info) {
  if (info.prune_error) raise(*info.prune_error);
  return info;
}

// The directory of a store that may be written as RUN:NAME.
std::string resolved(const nb::bytes& path) {
  auto directory = resolve_branch(to_path(path));
  if (!directory) raise(directory.error());
  return *std::move(directory);
}

PyStore open_store(nb::bytes path, StoreOptions options) {
  // The innermost call of this thread is that of the handle.
  options.interrupted = [] {
    RunContext* const context = RunContext::innermost();
    return context != nullptr && (context->waits_for_itself() || !context->go_on());
  };
  const std::string directory = resolved(path);
  std::error_code failure;
  std::string real_path =
      is_object_path(directory) ? directory : std::filesystem::weakly_canonical(directory, failure).string();
  if (failure) real_path = directory;
  // A shared store takes the lock in each call, which waits; any other takes it here.
  const bool waits_here = options.access != StoreAccess::shared;
  return {call_in_slices(
              waits_here ? options.timeout_ms : 0, kLockSliceMs,
              [&](std::uint64_t slice_ms, bool) {
                if (waits_here) options.timeout_ms = slice_ms;
                return Store::open(directory, options).map(destroyed_without_gil);
              },
              options.access == StoreAccess::read ? std::string() : real_path),
          directory, real_path};
}

void close(PyStore& self) {
  std::shared_ptr<Store> store = std::exchange(self.store, nullptr);
  const GilRelease release;
  store.reset();
}

Checkpoint save_checkpoint(const PyStore& self, std::uint64_t step, const NativeState& given,
                           const CommitOptions& commit, unsigned threads, nb::object progress) {
  RunContext context(std::move(progress), self.real_path);
  const State state = state_from_python(given, context);
  return raise_prune_error(
      self.call(context, [&](Store& store) { return store.save(step, state, context.run(threads), nullptr, commit); }));
}

// A save whose result is read once more: the progress of both is reported as one.
class ProgressOfTwo {
 public:
  explicit ProgressOfTwo(Progress report) : report_(std::move(report)) {}
  [[nodiscard]] Progress first() {
    return [this](std::uint64_t done, std::uint64_t total) {
      total_ = total;
      return report_(done, 2 * total);
    };
  }
  // The bytes of the second part are counted as those of the first.
  [[nodiscard]] Progress second() {
    return [this](std::uint64_t done, std::uint64_t total) {
      const double share = total == 0 ? 1.0 : static_cast<double>(done) / static_cast<double>(total);
      const std::uint64_t first = std::max<std::uint64_t>(total_, 1);
      const auto read = done >= total ? first : static_cast<std::uint64_t>(share * static_cast<double>(first));
      return report_(first + std::min(read, first), 2 * first);
    };
  }

 private:
  const Progress report_;
  std::atomic<std::uint64_t> total_ = 0;
};

Checkpoint save_folder_checkpoint(const PyStore& self, std::uint64_t step, PyFolderState& folder,
                                  const std::optional<AdamNumbers>& adam, const CommitOptions& commit, unsigned threads,
                                  nb::object progress) {
  RunContext context(std::move(progress), self.real_path);
  ProgressOfTwo parts(context.progress());
  const RunOptions save_options{usable_threads(threads), parts.first()};
  const RunOptions check_options{usable_threads(threads), parts.second()};
  if (adam) {
    for (TensorSource& tensor : folder.state.state.tensors) tensor.adam = adam;
  }
  // Only a checkpoint that can be read completely, of a folder that did not change meanwhile, is committed.
  const auto check = [&](const Snapshot& written) { return folder.state.check_written(written, check_options); };
  return raise_prune_error(self.call(
      context, [&](Store& store) { return store.save(step, folder.state.state, save_options, check, commit); }));
}

SaveSummary save_shard(const PyStore& self, std::uint64_t step, const ShardPlace& place, const NativeState& given,
                       bool replace, unsigned threads, nb::object progress) {
  RunContext context(std::move(progress), self.real_path);
  const State state = state_from_python(given, context);
  return self.call(context,
                   [&](Store& store) { return store.save_shard(step, place, state, context.run(threads), replace); });
}

CommitOutcome commit(const PyStore& self, std::uint64_t step, std::uint32_t shards, const std::string& attempt,
                     const CommitOptions& options) {
  CommitOutcome outcome = self.write([&](Store& store) { return store.commit(step, shards, attempt, options); });
  if (outcome.checkpoint) raise_prune_error(*outcome.checkpoint);
  return outcome;
}

nb::typed<nb::dict, nb::str, nb::bytes> files(const PyStore& self, std::uint64_t step) {
  nb::typed<nb::dict, nb::str, nb::bytes> result;
  for (const CheckpointFile& file : self.call([&](Store& store) { return store.files(step); })) {
    result[nb::str(file.name.data(), file.name.size())] = nb::bytes(file.bytes.data(), file.bytes.size());
  }
  return result;
}

void label(const PyStore& self, std::uint64_t step, const std::vector<std::string>& labels) {
  self.write([&](Store& store) { return store.label(step, labels); });
}

void unlabel(const PyStore& self, const std::string& label) {
  self.write([&](Store& store) { return store.unlabel(label); });
}

std::uint64_t find_label(const PyStore& self, const std::string& label) {
  return self.call([&](Store& store) { return store.find(label); });
}

std::vector<std::pair<std::string, std::uint64_t>> labels(const PyStore& self) {
  std::vector<std::pair<std::string, std::uint64_t>> all;
  for (StepLabel& each : self.call(&Store::labels)) all.emplace_back(std::move(each.label), each.step);
  return all;
}

PySnapshot snapshot(const PyStore& self, std::optional<std::uint64_t> step, std::uint32_t shard, bool partial) {
  return {self.call([&](Store& store) { return store.snapshot(step, shard, partial); })};
}

// The tensors of a checkpoint by name. Their Python objects share the list of the library.
nb::typed<nb::dict, nb::str, PyGlobalTensor> tensors(const PyStore& self, std::uint64_t step) {
  const auto listed = self.call([&](Store& store) { return store.tensors(step); });
  nb::typed<nb::dict, nb::str, PyGlobalTensor> result;
  for (const GlobalTensor& tensor : *listed) {
    result[nb::str(tensor.name.data(), tensor.name.size())] = PyGlobalTensor{listed, &tensor};
  }
  return result;
}

// Name, dtype, offset, extent, address, strides in bytes.
using BoxItem = std::tuple<std::string, std::string, std::vector<std::uint64_t>, std::vector<std::uint64_t>,
                           std::uintptr_t, std::vector<std::int64_t>>;

void read_boxes(const PyStore& self, std::uint64_t step, const std::vector<BoxItem>& boxes, unsigned threads,
                nb::object progress) {
  std::vector<TensorBox> native;
  native.reserve(boxes.size());
  for (const auto& [name, dtype_name, offset, extent, address, strides] : boxes) {
    native.push_back({name, dtype_name, offset, extent, reinterpret_cast<std::byte*>(address), strides});
  }
  RunContext context(std::move(progress));
  self.call(context, [&](Store& store) { return store.read_boxes(step, native, context.run(threads)); });
}

PruneReport prune(const PyStore& self, const Retention& retention, PruneOptions options, unsigned threads,
                  nb::object progress) {
  RunContext context(std::move(progress), self.real_path);
  options.run = context.run(threads);
  return self.call(context, [&](Store& store) { return store.prune(retention, options); });
}

PruneReport remove_steps(const PyStore& self, const std::vector<std::uint64_t>& steps, PruneOptions options,
                         unsigned threads, nb::object progress) {
  RunContext context(std::move(progress), self.real_path);
  options.run = context.run(threads);
  return self.call(context, [&](Store& store) { return store.remove(steps, options); });
}

RollbackReport rollback(const PyStore& self, std::uint64_t step) {
  return self.write([&](Store& store) { return store.rollback(step); });
}

Branch make_branch(const PyStore& self, const std::string& name, std::uint64_t step, bool with_later, unsigned threads,
                   nb::object progress) {
  RunContext context(std::move(progress));
  return self.call(context, [&](Store& store) {
    return store.make_branch(name, step, {.with_later = with_later, .run = context.run(threads)});
  });
}

void remove_branch(const PyStore& self, const std::string& name) {
  self.call([&](Store& store) { return store.remove_branch(name); });
}

StoreVerification verify_store(const PyStore& self, bool decode, std::vector<std::uint64_t> steps, unsigned threads,
                               nb::object progress) {
  RunContext context(std::move(progress));
  StoreVerifyOptions options;
  options.decode = decode;
  options.steps = std::move(steps);
  options.run = context.run(threads);
  return self.call(context, [&](Store& store) { return store.verify(options); });
}

RepairReport repair(nb::bytes path, bool dry_run, unsigned threads, nb::object progress) {
  RunContext context(std::move(progress));
  RepairOptions options;
  options.dry_run = dry_run;
  options.run = context.run(threads);
  const std::string directory = resolved(path);
  return context.call([&] { return Store::repair(directory, options); });
}

}  // namespace

void bind_store(nb::module_& module) {
  bind_store_reports(module);
  module.def("resolve_branch", [](nb::bytes path) { return to_bytes(resolved(path)); }, nb::arg("path"));
  module.def("is_store", [](nb::bytes path) { return is_store(to_path(path)); }, nb::arg("path"));

  nb::class_<PyStore>(module, "Store")
      .def_static("open", &open_store, nb::arg("path"), nb::arg("options"))
      .def_static("repair", &repair, nb::arg("path"), nb::kw_only(), nb::arg("dry_run"), nb::arg("threads"),
                  nb::arg("progress").none())
      .def("close", &close)
      .def_prop_ro("is_closed", [](const PyStore& self) { return self.store == nullptr; })
      .def_prop_ro("path", [](const PyStore& self) { return to_bytes(self.path); })
      .def_prop_ro("run_id", [](const PyStore& self) { return self.in_use()->run_id(); })
      .def_prop_ro("settings", [](const PyStore& self) { return self.in_use()->settings(); })
      .def_prop_ro("is_durable", [](const PyStore& self) { return self.in_use()->is_durable(); })
      .def("steps", [](const PyStore& self) { return self.call(&Store::steps); })
      .def("checkpoints", [](const PyStore& self) { return self.call(&Store::checkpoints); })
      .def("usage", [](const PyStore& self) { return self.write([](Store& store) { return store.usage(); }); })
      .def(
          "checkpoint",
          [](const PyStore& self, std::uint64_t step) {
            return self.call([&](Store& store) { return store.checkpoint(step); });
          },
          nb::arg("step"))
      .def("latest", [](const PyStore& self) { return self.call(&Store::latest); })
      .def("snapshot", &snapshot, nb::arg("step").none(), nb::arg("shard"), nb::arg("partial"))
      .def("tensors", &tensors, nb::arg("step"))
      .def(
          "whole_state",
          [](const PyStore& self, std::uint64_t step) {
            return self.call([&](Store& store) { return open_whole_state(store, step); });
          },
          nb::arg("step"))
      .def("read_boxes", &read_boxes, nb::arg("step"), nb::arg("boxes"), nb::kw_only(), nb::arg("threads"),
           nb::arg("progress").none())
      .def("save", &save_checkpoint, nb::arg("step"), nb::arg("state"), nb::arg("commit"), nb::kw_only(),
           nb::arg("threads"), nb::arg("progress").none())
      .def("save_folder", &save_folder_checkpoint, nb::arg("step"), nb::arg("folder"), nb::arg("adam").none(),
           nb::arg("commit"), nb::kw_only(), nb::arg("threads"), nb::arg("progress").none())
      .def("save_shard", &save_shard, nb::arg("step"), nb::arg("place"), nb::arg("state"), nb::kw_only(),
           nb::arg("replace"), nb::arg("threads"), nb::arg("progress").none())
      .def("commit", &commit, nb::arg("step"), nb::arg("shards"), nb::arg("attempt"), nb::arg("options"))
      .def("files", &files, nb::arg("step"))
      .def("label", &label, nb::arg("step"), nb::arg("labels"))
      .def("unlabel", &unlabel, nb::arg("label"))
      .def("find", &find_label, nb::arg("label"))
      .def("labels", &labels)
      .def("prune", &prune, nb::arg("retention"), nb::arg("options"), nb::kw_only(), nb::arg("threads"),
           nb::arg("progress").none())
      .def("remove", &remove_steps, nb::arg("steps"), nb::arg("options"), nb::kw_only(), nb::arg("threads"),
           nb::arg("progress").none())
      .def("rollback", &rollback, nb::arg("step"))
      .def("make_branch", &make_branch, nb::arg("name"), nb::arg("step"), nb::kw_only(), nb::arg("with_later"),
           nb::arg("threads"), nb::arg("progress").none())
      .def("branches", [](const PyStore& self) { return self.call(&Store::branches); })
      .def("remove_branch", &remove_branch, nb::arg("name"))
      .def("verify", &verify_store, nb::kw_only(), nb::arg("decode"), nb::arg("steps"), nb::arg("threads"),
           nb::arg("progress").none());
}

}  // namespace bitsnap::python
