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

// Raises InvalidArgumentError for a name that no policy has.
[[nodiscard]] Policy to_policy(const std::string& name);
// The same for an objective.
[[nodiscard]] Objective to_objective(const std::string& name);
// The same for a rule of bases.
[[nodiscard]] BaseRule to_base_rule(const std::string& name);
// The same for a text that is no rule of loss.
[[nodiscard]] std::vector<LossRule> to_loss_rules(const std::vector<std::string>& texts);

void bind_engine(nanobind::module_& module);
void bind_reading(nanobind::module_& module);
void bind_store(nanobind::module_& module);
void bind_writing(nanobind::module_& module);

}  // namespace bitsnap::python
