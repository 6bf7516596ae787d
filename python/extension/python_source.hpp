// States from Python: tensors by address, with any strides, or copied to the CPU when they are needed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include <nanobind/nanobind.h>

#include <bitsnap/writer.hpp>

#include "bindings.hpp"
#include "run_context.hpp"
#include "strided_memory.hpp"

namespace bitsnap::python {

// The tensors of a state without their data. It may be saved many times, each time with other data.
struct TensorTable {
  std::vector<TensorSource> tensors;
};

// The tree of a state.
struct ValueTree {
  Value value;
};

using TensorData = nanobind::typed<nanobind::list, nanobind::any>;

// A state as Python packs it.
struct NativeState {
  std::shared_ptr<TensorTable> tensors;
  // For each tensor memory of the caller, little-endian: an address if it is contiguous, otherwise (address, shape,
  // strides in bytes, bytes of an element). Or a callable that returns (owner, address) of contiguous memory: a thread
  // of the library calls it when the first bytes of the tensor are needed, and releases the owner after the last. A
  // callable with an attribute `copy_all` is a tensor of a device (bitsnap._tensors.device_copies.DeviceTensor): an
  // engine copies all of them with one call of that.
  TensorData data;
  std::shared_ptr<ValueTree> tree;  // nullptr: none
  Metadata metadata;
};

// The result must not outlive `state`, its memory and `context`.
[[nodiscard]] State state_from_python(const NativeState& state, RunContext& context);

// `given`, for one call.
[[nodiscard]] SaveOptions save_options(SaveOptions given, RunContext& context);

void bind_sources(nanobind::module_& module);

// (address, shape, strides in bytes, bytes of an element).
using StridedTuple = std::tuple<std::uintptr_t, std::vector<std::uint64_t>, std::vector<std::int64_t>, std::size_t>;

[[nodiscard]] StridedMemory strided_memory(const StridedTuple& description);

}  // namespace bitsnap::python
