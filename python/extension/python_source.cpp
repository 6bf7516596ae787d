// Threads of the library read memory of Python. They take the GIL only to create and release a tensor.
#include "python_source.hpp"

#include <cstring>
#include <span>
#include <string>

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "gil.hpp"
#include "python_value.hpp"

namespace nb = nanobind;

namespace bitsnap::python {

namespace {

// Memory that a Python object owns.
class OwnedMemory {
 public:
  OwnedMemory(nb::object owner, std::uintptr_t address)
      : owner_(std::move(owner)), data_(reinterpret_cast<const std::byte*>(address)) {}
  OwnedMemory(const OwnedMemory&) = delete;
  OwnedMemory& operator=(const OwnedMemory&) = delete;
  ~OwnedMemory() {
    const GilAcquire gil;
    owner_.reset();
  }

  [[nodiscard]] const std::byte* data() const noexcept { return data_; }

 private:
  nb::object owner_;
  const std::byte* data_;
};

// A tensor whose bytes exist only while they are read. No thread waits for the mutex while it holds the GIL.
class LazyTensor {
 public:
  LazyTensor(nb::object make, std::uint64_t size_bytes, RunContext& context)
      : make_(std::move(make)), size_bytes_(size_bytes), context_(context) {}
  LazyTensor(const LazyTensor&) = delete;
  LazyTensor& operator=(const LazyTensor&) = delete;
  ~LazyTensor() {
    const GilAcquire gil;
    make_.reset();
  }

  Result<void> read(std::uint64_t offset, std::span<std::byte> out) {
    Result<std::shared_ptr<const OwnedMemory>> memory = acquire();
    if (!memory) return tl::unexpected(std::move(memory.error()));
    std::memcpy(out.data(), (*memory)->data() + offset, out.size());
    release(out.size());
    return {};
  }

 private:
  Result<std::shared_ptr<const OwnedMemory>> acquire() {
    const std::lock_guard lock(mutex_);
    if (memory_ == nullptr) {
      const GilAcquire gil;
      const RunContext::Callback callback(context_);
      try {
        const nb::object made = make_();
        memory_ = std::make_shared<const OwnedMemory>(nb::object(made[0]), nb::cast<std::uintptr_t>(made[1]));
      } catch (nb::python_error& exception) {
        context_.keep(std::move(exception));
        return tl::unexpected(Error(ErrorKind::cancelled, "a tensor could not be brought to the CPU"));
      }
    }
    return memory_;
  }

  void release(std::size_t bytes) {
    std::shared_ptr<const OwnedMemory> done;  // destroyed after the lock is released
    const std::lock_guard lock(mutex_);
    served_bytes_ += bytes;
    if (served_bytes_ < size_bytes_) return;
    served_bytes_ = 0;
    done.swap(memory_);
  }

  nb::object make_;
  const std::uint64_t size_bytes_;
  RunContext& context_;
  std::mutex mutex_;
  std::shared_ptr<const OwnedMemory> memory_;
  std::uint64_t served_bytes_ = 0;
};

// The tensors of a state that are on a device: objects of the same class of bitsnap._tensors.device_copies.
class DeviceCopies {
 public:
  explicit DeviceCopies(RunContext& context) : context_(context) {}
  DeviceCopies(const DeviceCopies&) = delete;
  DeviceCopies& operator=(const DeviceCopies&) = delete;
  ~DeviceCopies() {
    const GilAcquire gil;
    tensors_.reset();
  }

  // Needs the GIL.
  void add(nb::handle tensor) { tensors_.append(tensor); }

  Result<void> copy(std::span<const std::span<std::byte>> to) const {
    const GilAcquire gil;
    const RunContext::Callback callback(context_);
    try {
      nb::list memory;
      for (const auto& each : to) {
        memory.append(nb::make_tuple(reinterpret_cast<std::uintptr_t>(each.data()), each.size()));
      }
      tensors_[0].attr("copy_all")(tensors_, memory);
      return {};
    } catch (nb::python_error& exception) {
      context_.keep(std::move(exception));
      return tl::unexpected(Error(ErrorKind::cancelled, "the tensors of a device could not be copied"));
    }
  }

  // The deleter drops what Python returned.
  std::shared_ptr<void> pin(std::span<std::byte> memory) const {
    const GilAcquire gil;
    const RunContext::Callback callback(context_);
    try {
      nb::object made = tensors_[0].attr("pin")(reinterpret_cast<std::uintptr_t>(memory.data()), memory.size());
      return {made.release().ptr(), [](PyObject* object) {
                const GilAcquire dropping;
                Py_DECREF(object);
              }};
    } catch (nb::python_error& exception) {
      context_.keep(std::move(exception));
      return nullptr;
    }
  }

 private:
  nb::list tensors_;
  RunContext& context_;
};

// Name, dtype name, shape, size in bytes, role or None, name of its master and element in it or None, AdamNumbers or
// None, index of the tensor it is an alias of or None, its box or None.
using Box = std::tuple<std::string, std::vector<std::uint64_t>, std::vector<std::uint64_t>>;
using Item = std::tuple<std::string, std::string, std::vector<std::uint64_t>, std::uint64_t, std::optional<std::string>,
                        std::optional<std::pair<std::string, std::uint64_t>>, std::optional<AdamNumbers>,
                        std::optional<std::size_t>, std::optional<Box>>;

Role role_of(const std::optional<std::string>& given, const TensorInfo& info) {
  if (!given) return guess_role(info.global_name(), info.dtype);
  const std::optional<Role> role = role_from_name(*given);
  if (!role) {
    raise(Error(ErrorKind::invalid_argument, "tensor '" + info.name + "': unknown role '" + *given +
                                                 "', expected 'weight', 'master', 'exp_avg', 'exp_avg_sq' or 'other'"));
  }
  return *role;
}

TensorTable table_from_python(const nb::typed<nb::sequence, nb::any>& items) {
  TensorTable table;
  table.tensors.reserve(nb::len(items));
  for (const nb::handle item : items) {
    auto [name, dtype_name, shape, size_bytes, role, master, adam, alias, box] = nb::cast<Item>(item);
    TensorSource& source = table.tensors.emplace_back();
    source.info.name = std::move(name);
    source.info.dtype = dtype_from_name(dtype_name);
    source.info.dtype_name = std::move(dtype_name);
    source.info.shape = std::move(shape);
    source.info.size_bytes = size_bytes;
    if (box) {
      auto& [global_name, global_shape, offset] = *box;
      source.info.shard = ShardBox{std::move(global_shape), std::move(offset), std::move(global_name)};
    }
    source.info.role = role_of(role, source.info);
    if (master) source.master = MasterSlice{std::move(master->first), master->second};
    source.adam = adam;
    source.info.alias_of = alias;
  }
  return table;
}

void set_data(TensorSource& source, nb::handle data, RunContext& context) {
  if (PyLong_CheckExact(data.ptr())) {
    source.data = reinterpret_cast<const std::byte*>(nb::cast<std::uintptr_t>(data));
  } else if (PyTuple_Check(data.ptr())) {
    source.read = [memory = strided_memory(nb::cast<StridedTuple>(data))](std::uint64_t offset,
                                                                          std::span<std::byte> out) -> Result<void> {
      memory.read(offset, out);
      return {};
    };
  } else {
    source.read = [lazy = std::make_shared<LazyTensor>(nb::borrow(data), source.info.size_bytes, context)](
                      std::uint64_t offset, std::span<std::byte> out) { return lazy->read(offset, out); };
    source.read_brings_all = true;
  }
}

DeviceTensors device_tensors(const TensorData& data, RunContext& context) {
  DeviceTensors found;
  const auto copies = std::make_shared<DeviceCopies>(context);
  for (std::size_t i = 0; i < data.size(); ++i) {
    const nb::handle each = data[i];
    if (PyLong_CheckExact(each.ptr()) || PyTuple_Check(each.ptr()) || !nb::hasattr(each, "copy_all")) continue;
    found.tensors.push_back(i);
    copies->add(each);
  }
  found.copy = [copies](std::span<const std::span<std::byte>> to) { return copies->copy(to); };
  found.pin = [copies](std::span<std::byte> memory) { return copies->pin(memory); };
  return found;
}

}  // namespace

StridedMemory strided_memory(const StridedTuple& description) {
  const auto& [address, shape, strides, item_bytes] = description;
  if (shape.size() != strides.size() || item_bytes == 0) throw nb::value_error("shape and strides do not go together");
  return StridedMemory(reinterpret_cast<std::byte*>(address), shape, strides, item_bytes);
}

State state_from_python(const NativeState& given, RunContext& context) {
  if (given.data.size() != given.tensors->tensors.size()) {
    throw nb::value_error("tensors and their data do not go together");
  }
  State state;
  state.tensors = given.tensors->tensors;
  for (std::size_t i = 0; i < state.tensors.size(); ++i) set_data(state.tensors[i], given.data[i], context);
  if (DeviceTensors found = device_tensors(given.data, context); !found.tensors.empty()) {
    state.device_tensors = std::move(found);
  }
  if (given.tree != nullptr) state.tree = given.tree->value;
  state.metadata = given.metadata;
  return state;
}

void bind_sources(nb::module_& module) {
  nb::class_<TensorTable>(module, "TensorTable", "The tensors of a state without their data.")
      .def(
          "__init__",
          [](TensorTable* self, const nb::typed<nb::sequence, nb::any>& entries) {
            new (self) TensorTable(table_from_python(entries));
          },
          nb::arg("entries"));
  nb::class_<ValueTree>(module, "ValueTree", "The tree of a state.")
      .def(
          "__init__", [](ValueTree* self, nb::handle value) { new (self) ValueTree{value_from_python(value)}; },
          nb::arg("value").none());
  nb::class_<NativeState>(module, "NativeState", "A state as the functions of the extension take it.")
      .def(
          "__init__",
          [](NativeState* self, std::shared_ptr<TensorTable> tensors, TensorData data, std::shared_ptr<ValueTree> tree,
             Metadata metadata) {
            new (self) NativeState{std::move(tensors), std::move(data), std::move(tree), std::move(metadata)};
          },
          nb::arg("tensors"), nb::arg("data"), nb::arg("tree").none(), nb::arg("metadata"))
      .def_ro("data", &NativeState::data);
}

}  // namespace bitsnap::python
