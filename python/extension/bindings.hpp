// Declarations that the parts of the extension module share.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <nanobind/nanobind.h>

#include <bitsnap/snapshot.hpp>
#include <bitsnap/store.hpp>
#include <bitsnap/writer.hpp>

namespace bitsnap::python {

// An open snapshot. Any number of threads may use it.
struct PySnapshot {
  std::shared_ptr<const Snapshot> snapshot;
};

// Paths are bytes of os.fsencode, because names of files need not be text.
[[nodiscard]] inline std::string to_path(const nanobind::bytes& path) { return {path.c_str(), path.size()}; }

void bind_engine(nanobind::module_& module);
void bind_loss(nanobind::module_& module);
void bind_reading(nanobind::module_& module);
void bind_settings(nanobind::module_& module);
void bind_store(nanobind::module_& module);
void bind_store_reports(nanobind::module_& module);
void bind_writing(nanobind::module_& module);

}  // namespace bitsnap::python
