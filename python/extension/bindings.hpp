// What the parts of the extension module share.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <nanobind/nanobind.h>

#include <bitsnap/snapshot.hpp>
#include <bitsnap/store.hpp>
#include <bitsnap/writer.hpp>

namespace bitsnap::python {

// An open snapshot as Python holds it; any number of threads may use it.
struct PySnapshot {
  std::shared_ptr<const Snapshot> snapshot;
};

// Paths cross as os.fsencode gives them: file names need not be text.
[[nodiscard]] inline std::string to_path(const nanobind::bytes& path) { return {path.c_str(), path.size()}; }

// By the table of settings; raises InvalidArgumentError for an unknown name or a value out of range.
[[nodiscard]] CodingSettings to_settings(const nanobind::dict& settings);
[[nodiscard]] std::vector<std::string> to_texts(const std::vector<LossRule>& rules);

void bind_engine(nanobind::module_& module);
void bind_reading(nanobind::module_& module);
void bind_store(nanobind::module_& module);
void bind_writing(nanobind::module_& module);

}  // namespace bitsnap::python
