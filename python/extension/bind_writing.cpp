// Saving states, and safetensors files in and out.
#include <optional>
#include <string>
#include <utility>

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <bitsnap/safetensors.hpp>
#include <bitsnap/writer.hpp>

#include "bindings.hpp"
#include "python_error.hpp"
#include "python_source.hpp"
#include "report_class.hpp"
#include "run_context.hpp"

namespace nb = nanobind;

namespace bitsnap::python {

namespace {

SaveSummary save(nb::bytes path, const NativeState& given, const SaveOptions& options, nb::object progress) {
  RunContext context(std::move(progress));
  const SaveOptions complete = save_options(options, context);
  const State state = state_from_python(given, context);
  const std::string to = to_path(path);
  return context.call([&] { return save_snapshot(to, state, complete); });
}

nb::bytes dump(const NativeState& given, const SaveOptions& options, nb::object progress) {
  RunContext context(std::move(progress));
  const SaveOptions complete = save_options(options, context);
  const State state = state_from_python(given, context);
  const SnapshotBytes dumped = context.call([&] { return dump_snapshot(state, complete); });
  return nb::bytes(dumped.bytes.data(), dumped.bytes.size());
}

SaveSummary compress(nb::bytes source, nb::bytes path, const SaveOptions& options, nb::object progress) {
  RunContext context(std::move(progress));
  const SaveOptions complete = save_options(options, context);
  const std::string from = to_path(source);
  const std::string to = to_path(path);
  return context.call([&]() -> Result<SaveSummary> {
    const Result<State> state = open_safetensors(from);
    if (!state) return tl::unexpected(state.error());
    return save_snapshot(to, *state, complete);
  });
}

std::uint64_t decompress(const PySnapshot& snapshot, nb::bytes path, bool overwrite, unsigned threads,
                         nb::object progress) {
  RunContext context(std::move(progress));
  const std::string to = to_path(path);
  return context.call([&] { return export_safetensors(*snapshot.snapshot, to, overwrite, context.run(threads)); })
      .bytes;
}

}  // namespace

SaveOptions save_options(SaveOptions given, RunContext& context) {
  given.threads = usable_threads(given.threads);
  given.progress = context.progress();
  return given;
}

void bind_writing(nb::module_& module) {
  ReportClass<SaveSummary>(module, "SaveSummary", "What was written. Sizes are in bytes.")
      .field(
          "id", [](const SaveSummary& self) { return self.id.to_hex(); },
          "The id of the content, 32 hexadecimal digits.")
      .field("raw_bytes", &SaveSummary::raw_bytes, "Size of all tensors; tied tensors count once.")
      .field("stored_bytes", &SaveSummary::stored_bytes, "Size of the file.")
      .field("chunks", &SaveSummary::chunks);

  module.def("save", &save, nb::arg("path"), nb::arg("state"), nb::arg("options"), nb::arg("progress").none());
  module.def("dump", &dump, nb::arg("state"), nb::arg("options"), nb::arg("progress").none());
  module.def("compress", &compress, nb::arg("source"), nb::arg("path"), nb::arg("options"), nb::arg("progress").none());
  module.def("decompress", &decompress, nb::arg("snapshot"), nb::arg("path"), nb::kw_only(), nb::arg("overwrite"),
             nb::arg("threads"), nb::arg("progress").none());
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
