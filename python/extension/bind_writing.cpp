// Saving states, and safetensors files in and out; what may be lost on the way.
#include <algorithm>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <variant>
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

SaveOptions save_options(const nb::dict& settings, const PySnapshot* base, bool overwrite, unsigned threads,
                         RunContext& context) {
  SaveOptions options{.settings = to_settings(settings)};
  if (base != nullptr) options.base = base->snapshot;
  options.overwrite = overwrite;
  options.threads = usable_threads(threads);
  options.progress = context.progress();
  return options;
}

SaveSummary save(nb::bytes path, nb::sequence tensors, nb::object tree,
                 std::vector<std::pair<std::string, std::string>> metadata, const nb::dict& settings,
                 const PySnapshot* base, bool overwrite, unsigned threads, nb::object progress) {
  RunContext context(std::move(progress));
  const SaveOptions options = save_options(settings, base, overwrite, threads, context);
  const State state = state_from_python(std::move(tensors), std::move(tree), std::move(metadata), context);
  const std::string to = to_path(path);
  return context.call([&] { return save_snapshot(to, state, options); });
}

SaveSummary compress(nb::bytes source, nb::bytes path, const nb::dict& settings, const std::optional<AdamTuple>& adam,
                     const PySnapshot* base, bool overwrite, unsigned threads, nb::object progress) {
  RunContext context(std::move(progress));
  SaveOptions options = save_options(settings, base, overwrite, threads, context);
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

CodingSettings to_settings(const nb::dict& settings) {
  CodingSettings made;
  for (const auto& [key, value] : settings) {
    SettingValue given;
    if (nb::isinstance<nb::int_>(value)) {
      given = nb::cast<std::uint64_t>(value);
    } else if (nb::isinstance<nb::str>(value)) {
      given = nb::cast<std::string>(value);
    } else {
      given = nb::cast<std::vector<std::string>>(value);
    }
    value_or_raise(set_setting(made, nb::cast<std::string>(key), given));
  }
  return made;
}

std::vector<std::string> to_texts(const std::vector<LossRule>& rules) {
  std::vector<std::string> texts;
  for (const LossRule& rule : rules) texts.push_back(format_loss_rule(rule));
  return texts;
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
             nb::kw_only(), nb::arg("settings"), nb::arg("base").none(), nb::arg("overwrite"), nb::arg("threads"),
             nb::arg("progress").none());
  module.def("compress", &compress, nb::arg("source"), nb::arg("path"), nb::kw_only(), nb::arg("settings"),
             nb::arg("adam").none(), nb::arg("base").none(), nb::arg("overwrite"), nb::arg("threads"),
             nb::arg("progress").none());
  module.def("decompress", &decompress, nb::arg("snapshot"), nb::arg("path"), nb::kw_only(), nb::arg("overwrite"),
             nb::arg("threads"), nb::arg("progress").none());
  // The settings as they are stored: checked, and with loss rules in their normal form.
  module.def(
      "check_settings",
      [](const nb::dict& settings) {
        const CodingSettings made = to_settings(settings);
        nb::dict result;
        for (const SettingField& field : setting_fields()) {
          const std::optional<SettingValue> value = field.get(made);
          const nb::str name(field.name.data(), field.name.size());
          if (value) std::visit([&](const auto& member) { result[name] = nb::cast(member); }, *value);
        }
        return result;
      },
      nb::arg("settings"));
  // Which of the rules fit none of the tensors: of name, dtype, and role, where it is not to be guessed.
  module.def(
      "idle_rules",
      [](const std::vector<std::string>& texts,
         const std::vector<std::tuple<std::string, std::string, std::optional<std::string>>>& tensors) {
        std::vector<std::string> idle;
        for (const std::string& text : texts) {
          const LossRule rule = value_or_raise(parse_loss_rule(text));
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
