// Folders and files of any kind: opening them to be saved, and reading those that snapshots hold. Paths are bytes of
// os.fsencode, memory is passed as (address, size). bitsnap/folder.py has the interface for users.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <bitsnap/folder.hpp>
#include <bitsnap/writer.hpp>

#include "bindings.hpp"
#include "parallel_pieces.hpp"
#include "python_error.hpp"
#include "report_class.hpp"
#include "run_context.hpp"

namespace nb = nanobind;

namespace bitsnap::python {

namespace {

constexpr std::uint64_t kFilePieceBytes = std::uint64_t{4} << 20;

using Numbers = nb::typed<nb::tuple, int, nb::ellipsis>;

struct PyFolder {
  std::shared_ptr<const Folder> folder;
};

// Entries and tensors stay parts of their folder, which may have very many of them.
struct PyFolderEntry {
  std::shared_ptr<const Folder> folder;
  const FolderEntry* entry = nullptr;
};
struct PyFileTensor {
  std::shared_ptr<const Folder> folder;
  const FileTensor* tensor = nullptr;
};

Numbers tuple_of(const std::vector<std::uint64_t>& numbers) {
  nb::object tuple = nb::steal(PyTuple_New(static_cast<Py_ssize_t>(numbers.size())));
  if (!tuple.is_valid()) throw nb::python_error();
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    PyTuple_SetItem(tuple.ptr(), static_cast<Py_ssize_t>(i), nb::cast(numbers[i]).release().ptr());
  }
  return nb::borrow<Numbers>(tuple);
}

std::optional<std::string_view> if_any(const std::string& text) {
  return text.empty() ? std::nullopt : std::optional<std::string_view>(text);
}

PyFolderState open_source(nb::bytes path, std::optional<std::uint64_t> step) {
  const std::string source = to_path(path);
  RunContext context{nb::none()};
  return {context.call([&] { return open_folder(source, {.step = step}); })};
}

std::vector<nb::str> notes_of(const PyFolderState& self) {
  std::vector<nb::str> notes;
  for (const std::string& note : self.state.notes) notes.push_back(text_of_message(note));
  return notes;
}

SaveSummary save_folder_file(const PyFolderState& folder, nb::bytes path, const SaveOptions& given,
                             nb::object progress) {
  RunContext context(std::move(progress));
  SaveOptions options = save_options(given, context);
  options.check = [&](const Snapshot& written) {
    return folder.state.check_written(written, {options.threads, nullptr});
  };
  const std::string to = to_path(path);
  return context.call([&] { return save_snapshot(to, folder.state.state, options); });
}

PyFolder open_stored_folder(const PySnapshot& snapshot) {
  RunContext context{nb::none()};
  return {context.call([&] { return Folder::open(snapshot.snapshot); })};
}

const FolderEntry& folder_entry_at(const PyFolder& self, std::size_t entry) {
  if (entry >= self.folder->entries().size()) throw nb::index_error("no such entry");
  return self.folder->entries()[entry];
}

std::vector<PyFileTensor> file_tensors_of(const PyFolder& self, std::size_t entry) {
  std::vector<PyFileTensor> tensors;
  const FolderEntry* file = &folder_entry_at(self, entry);
  if (file->kind == EntryKind::hard_link) file = &folder_entry_at(self, *self.folder->find(file->target));
  for (const FileTensor& tensor : file->tensors) tensors.push_back({self.folder, &tensor});
  return tensors;
}

Result<void> read_file_range(const Folder& folder, std::size_t entry, std::uint64_t offset, std::span<std::byte> out,
                             unsigned threads) {
  if (threads == 1 || out.size() < kParallelReadBytes) return folder.read(entry, offset, out);
  return for_each_piece((out.size() + kFilePieceBytes - 1) / kFilePieceBytes, threads, [&](std::uint64_t piece) {
    const std::uint64_t begin = piece * kFilePieceBytes;
    return folder.read(entry, offset + begin, out.subspan(begin, std::min(kFilePieceBytes, out.size() - begin)));
  });
}

void read_file(const PyFolder& self, std::size_t entry, std::uint64_t offset, std::uintptr_t address,
               std::uint64_t size_bytes, unsigned threads) {
  RunContext context{nb::none()};
  context.call([&] {
    return read_file_range(*self.folder, entry, offset, memory_at(address, size_bytes), usable_threads(threads));
  });
}

void extract_folder(const PyFolder& self, nb::bytes path, const std::vector<std::size_t>& left_out, unsigned threads,
                    nb::object progress) {
  RunContext context(std::move(progress));
  const std::string to = to_path(path);
  context.call([&] { return self.folder->extract_without(left_out, to, context.run(threads)); });
}

std::vector<Folder::DamagedFile> damaged_files(const PyFolder& self, unsigned threads, nb::object progress) {
  RunContext context(std::move(progress));
  return context.call([&] {
    return self.folder->snapshot()
        ->damaged_tensors(context.run(threads))
        .map([&](const std::vector<DamagedTensor>& damaged) { return self.folder->damaged_files(damaged); });
  });
}

void extract_file(const PyFolder& self, std::size_t entry, nb::bytes path, bool overwrite, unsigned threads,
                  nb::object progress) {
  RunContext context(std::move(progress));
  const std::string to = to_path(path);
  context.call([&] { return self.folder->extract_file(entry, to, overwrite, context.run(threads)); });
}

void bind_entries(nb::module_& module) {
  ReportClass<PyFolderEntry>(module, "FolderEntry", "A file, directory or link of a folder.")
      .field(
          "path", [](const PyFolderEntry& self) { return file_name(self.entry->path); },
          "Relative to the folder; '' for the folder itself, or for the only file of a snapshot.")
      .field(
          "kind", [](const PyFolderEntry& self) { return entry_kind_name(self.entry->kind); },
          "'file', 'directory', 'symlink' or 'hardlink'.")
      .field(
          "mode", [](const PyFolderEntry& self) { return self.entry->mode; }, "The permission bits.")
      .field(
          "modified_ns", [](const PyFolderEntry& self) { return self.entry->modified_ns; },
          "The time of the last change, in nanoseconds since the Unix epoch.")
      .field(
          "size", [](const PyFolderEntry& self) { return self.entry->size_bytes; }, "Bytes of a file.")
      .field(
          "target",
          [](const PyFolderEntry& self) {
            return self.entry->target.empty() ? std::nullopt : std::optional(file_name(self.entry->target));
          },
          "What a symbolic link says; of a hard link, the path of the entry that is the same file.")
      .field(
          "container", [](const PyFolderEntry& self) { return if_any(self.entry->container); },
          "The format whose tensors bitsnap found in the file, such as 'torch-zip'. None: it is stored as plain bytes.")
      .field(
          "note",
          [](const PyFolderEntry& self) {
            return self.entry->note.empty() ? std::nullopt : std::optional(text_of_message(self.entry->note));
          },
          "Why a file that looks like a container is stored as plain bytes.");

  ReportClass<PyFileTensor>(module, "FileTensor", "A tensor of a file. Sizes and strides are in elements.")
      .field(
          "name", [](const PyFileTensor& self) { return text_of_message(self.tensor->name); }, "Its name in the file.")
      .field(
          "dtype", [](const PyFileTensor& self) { return text_of_message(self.tensor->dtype_name); },
          "As safetensors names it; for other dtypes, as the file names it.")
      .field(
          "item_bytes", [](const PyFileTensor& self) { return self.tensor->element_bytes; }, "0: unknown.")
      .field("shape", [](const PyFileTensor& self) { return tuple_of(self.tensor->shape); })
      .field(
          "stride",
          [](const PyFileTensor& self) {
            return self.tensor->stride.empty() ? std::nullopt : std::optional(tuple_of(self.tensor->stride));
          },
          "None: the elements are in row-major order.")
      .field(
          "tensor", [](const PyFileTensor& self) { return self.tensor->tensor; }, "The tensor of the snapshot.")
      .field("offset", [](const PyFileTensor& self) { return self.tensor->offset; }, "Of element 0 in it, in bytes.");
}

}  // namespace

void bind_folder(nb::module_& module) {
  bind_entries(module);
  nb::class_<PyFolderState>(module, "FolderState")
      .def_static("open", &open_source, nb::arg("path"), nb::arg("step").none())
      .def_prop_ro("notes", &notes_of)
      .def_prop_ro("tensors",
                   [](const PyFolderState& self) {
                     std::vector<std::tuple<std::string, std::string, std::string>> tensors;
                     for (const TensorSource& tensor : self.state.state.tensors) {
                       tensors.emplace_back(tensor.info.name, tensor.info.dtype_name,
                                            std::string(role_name(tensor.info.role)));
                     }
                     return tensors;
                   })
      .def("save", &save_folder_file, nb::arg("path"), nb::arg("options"), nb::arg("progress").none());

  ReportClass<Folder::DamagedFile>(module, "DamagedFile", "A file of a folder that cannot be read.")
      .field("entry", &Folder::DamagedFile::entry, "Its number.")
      .field("error", &Folder::DamagedFile::error);

  nb::class_<PyFolder>(module, "Folder")
      .def_static("open", &open_stored_folder, nb::arg("snapshot"))
      .def_prop_ro("name", [](const PyFolder& self) { return file_name(self.folder->name()); })
      .def("__len__", [](const PyFolder& self) { return self.folder->entries().size(); })
      .def(
          "__getitem__",
          [](const PyFolder& self, std::size_t index) {
            return PyFolderEntry{self.folder, &folder_entry_at(self, index)};
          },
          nb::arg("index"))
      .def("tensors", &file_tensors_of, nb::arg("entry"))
      .def("read", &read_file, nb::arg("entry"), nb::arg("offset"), nb::arg("address"), nb::arg("size_bytes"),
           nb::arg("threads"))
      .def("damaged_files", &damaged_files, nb::arg("threads"), nb::arg("progress").none())
      .def("extract", &extract_folder, nb::arg("path"), nb::kw_only(), nb::arg("left_out"), nb::arg("threads"),
           nb::arg("progress").none())
      .def("extract_file", &extract_file, nb::arg("entry"), nb::arg("path"), nb::kw_only(), nb::arg("overwrite"),
           nb::arg("threads"), nb::arg("progress").none());
}

}  // namespace bitsnap::python
