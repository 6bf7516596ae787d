// Saving states, and safetensors files in and out; what may be lost on the way.
#include <algorithm>
#include <optional>
#include <string>
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

#include <bitsnap/safetensors.hpp>
#include <bitsnap/writer.hpp>

#include "bindings.hpp"
#include "python_error.hpp"
#include "python_source.hpp"
#include "run_context.hpp"

namespace nb = nanobind;

namespace bitsnap::python {

namespace {

SaveOptions save_options(const std::string& policy, const std::vector<std::string>& loss, const std::string& objective,
                         std::uint64_t store_speed, const std::string& codec, const PySnapshot* base,
                         std::uint32_t max_depth, bool overwrite, unsigned threads, RunContext& context) {
  SaveOptions options;
  options.policy = to_policy(policy);
  options.loss = to_loss_rules(loss);
  options.objective = to_objective(objective);
  options.store_bytes_per_second = store_speed;
  options.codec = codec;
  if (base != nullptr) options.base = base->snapshot;
  options.max_depth = max_depth;
  options.overwrite = overwrite;
  options.threads = usable_threads(threads);
  options.progress = context.progress();
  return options;
}

SaveSummary save(nb::bytes path, nb::sequence tensors, nb::object tree,
                 std::vector<std::pair<std::string, std::string>> metadata, const std::string& policy,
                 const std::vector<std::string>& loss, const std::string& objective, std::uint64_t store_speed,
                 const std::string& codec, const PySnapshot* base, std::uint32_t max_depth, bool overwrite,
                 unsigned threads, nb::object progress) {
  RunContext context(std::move(progress));
  const SaveOptions options =
      save_options(policy, loss, objective, store_speed, codec, base, max_depth, overwrite, threads, context);
  const State state = state_from_python(std::move(tensors), std::move(tree), std::move(metadata), context);
  const std::string to = to_path(path);
  return context.call([&] { return save_snapshot(to, state, options); });
}

SaveSummary compress(nb::bytes source, nb::bytes path, const std::string& policy, const std::vector<std::string>& loss,
                     const std::optional<AdamTuple>& adam, const std::string& objective, std::uint64_t store_speed,
                     const std::string& codec, const PySnapshot* base, std::uint32_t max_depth, bool overwrite,
                     unsigned threads, nb::object progress) {
  RunContext context(std::move(progress));
  SaveOptions options =
      save_options(policy, loss, objective, store_speed, codec, base, max_depth, overwrite, threads, context);
  if (adam) options.adam = adam_numbers(*adam);
  const std::string from = to_path(source);
  const std::string to = to_path(path);
  return context.call([&]() -> Result<SaveSummary> {
    const Result<State> state = open_safetensors(from);
    if (!state) return tl::unexpected(state.error());
    return save_snapshot(to, *state, options);
  });
}

std::uint64_t decompress(const PySnapshot& snapshot, nb::bytes path, bool overwrite, unsigned threads,
                         nb::object progress) {
  RunContext context(std::move(progress));
  const RunOptions options{usable_threads(threads), context.progress()};
  const std::string to = to_path(path);
  return context.call([&] { return export_safetensors(*snapshot.snapshot, to, overwrite, options); }).bytes;
}

}  // namespace

Policy to_policy(const std::string& name) {
  const std::optional<Policy> policy = policy_from_name(name);
  if (!policy) {
    raise(Error(ErrorKind::invalid_argument,
                "unknown policy '" + name + "', expected 'lossless', 'bounded', 'lmc', 'bitsnap' or 'raw'"));
  }
  return *policy;
}

Objective to_objective(const std::string& name) {
  const std::optional<Objective> objective = objective_from_name(name);
  if (!objective) {
    raise(Error(ErrorKind::invalid_argument,
                "unknown objective '" + name + "', expected 'ratio', 'balanced' or 'speed'"));
  }
  return *objective;
}

std::vector<LossRule> to_loss_rules(const std::vector<std::string>& texts) {
  std::vector<LossRule> rules;
  for (const std::string& text : texts) rules.push_back(value_or_raise(parse_loss_rule(text)));
  return rules;
}

void bind_writing(nb::module_& module) {
  nb::class_<SaveSummary>(module, "SaveSummary")
      .def_prop_ro("id", [](const SaveSummary& self) { return self.id.to_hex(); })
      .def_ro("raw_bytes", &SaveSummary::raw_bytes)
      .def_ro("stored_bytes", &SaveSummary::stored_bytes)
      .def_ro("chunks", &SaveSummary::chunks)
      .def("__repr__", [](const SaveSummary& self) {
        return "SaveSummary(id='" + self.id.to_hex() + "', raw_bytes=" + std::to_string(self.raw_bytes) +
               ", stored_bytes=" + std::to_string(self.stored_bytes) + ")";
      });

  module.def("save", &save, nb::arg("path"), nb::arg("tensors"), nb::arg("tree").none(), nb::arg("metadata"),
             nb::kw_only(), nb::arg("policy"), nb::arg("loss"), nb::arg("objective"), nb::arg("store_speed"),
             nb::arg("codec"), nb::arg("base").none(), nb::arg("max_depth"), nb::arg("overwrite"), nb::arg("threads"),
             nb::arg("progress").none());
  module.def("compress", &compress, nb::arg("source"), nb::arg("path"), nb::kw_only(), nb::arg("policy"),
             nb::arg("loss"), nb::arg("adam").none(), nb::arg("objective"), nb::arg("store_speed"), nb::arg("codec"),
             nb::arg("base").none(), nb::arg("max_depth"), nb::arg("overwrite"), nb::arg("threads"),
             nb::arg("progress").none());
  module.def("decompress", &decompress, nb::arg("snapshot"), nb::arg("path"), nb::kw_only(), nb::arg("overwrite"),
             nb::arg("threads"), nb::arg("progress").none());
  // Raises for a name that no policy has.
  module.def("check_policy", [](const std::string& name) { static_cast<void>(to_policy(name)); }, nb::arg("name"));
  // A rule in the words that a file has for it.
  module.def(
      "loss_rule", [](const std::string& text) { return format_loss_rule(value_or_raise(parse_loss_rule(text))); },
      nb::arg("text"));
  // Which of the rules fit none of the tensors: of name, dtype, and role, where it is not to be guessed.
  module.def(
      "idle_rules",
      [](const std::vector<std::string>& texts,
         const std::vector<std::tuple<std::string, std::string, std::optional<std::string>>>& tensors) {
        std::vector<std::string> idle;
        for (const LossRule& rule : to_loss_rules(texts)) {
          const auto is_for = [&](const auto& tensor) {
            const auto& [name, dtype, said] = tensor;
            const auto role = said ? role_from_name(*said) : guess_role(name, dtype_from_name(dtype));
            return role && fits(rule, *role, name);
          };
          if (std::ranges::none_of(tensors, is_for)) idle.push_back(format_loss_rule(rule));
        }
        return idle;
      },
      nb::arg("rules"), nb::arg("tensors"));
  module.def(
      "is_safetensors",
      [](nb::bytes path) {
        const std::string file = to_path(path);
        RunContext context{nb::none()};
        return context.call([&] { return detect_file_kind(file); }) == FileKind::safetensors;
      },
      nb::arg("path"));
}

}  // namespace bitsnap::python
