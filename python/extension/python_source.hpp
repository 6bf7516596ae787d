// A state from Python: tensors by address, or made contiguous on the CPU when their turn comes.
#pragma once

#include <nanobind/nanobind.h>

#include <bitsnap/writer.hpp>

#include "run_context.hpp"

namespace bitsnap::python {

// `tensors` is a sequence of (name, dtype name, shape, size in bytes, role or None, index of the tensor it is an alias
// of or None, data, owner). Data is an address, valid as long as owner lives, or a callable that gives (owner, address)
// of contiguous little-endian bytes: it is called from a thread of the library when the first bytes of the tensor are
// needed, and what it gave is let go after the last. The sources must not outlive `tensors` and `context`.
[[nodiscard]] std::vector<TensorSource> sources_from_python(nanobind::sequence tensors, RunContext& context);

}  // namespace bitsnap::python
