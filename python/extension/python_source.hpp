// States from Python: tensors by address, with any strides, or copied to the CPU when they are needed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <nanobind/nanobind.h>

#include <bitsnap/writer.hpp>

#include "run_context.hpp"
#include "strided_memory.hpp"

namespace bitsnap::python {

using Tensors = nanobind::typed<nanobind::sequence, nanobind::any>;

// `tensors` is a sequence of (name, dtype name, shape, size in bytes, role or None, name of its master and element in
// it or None, AdamNumbers or None, index of the tensor it is an alias of or None, data, owner). Data is memory that
// owner keeps, little-endian: an address if it is contiguous, otherwise (address, shape, strides in bytes, bytes of an
// element). Or it is a callable that returns (owner, address) of contiguous memory: a thread of the library calls it
// when the first bytes of the tensor are needed, and releases the owner after the last. `tree` is None or a tuple of
// one value. The state must not outlive `tensors` and `context`.
[[nodiscard]] State state_from_python(Tensors tensors, nanobind::object tree,
                                      std::vector<std::pair<std::string, std::string>> metadata, RunContext& context);

// (address, shape, strides in bytes, bytes of an element).
using StridedTuple = std::tuple<std::uintptr_t, std::vector<std::uint64_t>, std::vector<std::int64_t>, std::size_t>;

[[nodiscard]] StridedMemory strided_memory(const StridedTuple& description);

}  // namespace bitsnap::python
