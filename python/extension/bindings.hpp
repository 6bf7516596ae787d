// Declarations that the parts of the extension module share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <nanobind/nanobind.h>

#include <bitsnap/folder.hpp>
#include <bitsnap/snapshot.hpp>
#include <bitsnap/store.hpp>
#include <bitsnap/writer.hpp>

namespace bitsnap::python {

// An open snapshot. Any number of threads may use it.
struct PySnapshot {
  std::shared_ptr<const Snapshot> snapshot;
};

// The tensors of what `owner` keeps alive.
struct PyTensorInfos {
  std::shared_ptr<const void> owner;
  std::span<const TensorInfo> infos;
};

// The state of a checkpoint that several ranks saved, with global tensors. Any number of threads may use it.
class WholeState;
struct PyWholeState {
  std::shared_ptr<const WholeState> state;
};
// `step`: of a store that stays open meanwhile.
[[nodiscard]] Result<PyWholeState> open_whole_state(const Store& store, std::uint64_t step);

// Paths are bytes of os.fsencode, because names of files need not be text.
[[nodiscard]] inline std::string to_path(const nanobind::bytes& path) { return {path.c_str(), path.size()}; }

// Memory of the caller, which Python passes by its address.
[[nodiscard]] inline std::span<std::byte> memory_at(std::uintptr_t address, std::uint64_t size_bytes) {
  return {reinterpret_cast<std::byte*>(address), size_bytes};
}

// A name of a file, which need not be text, as os.fsdecode decodes it.
[[nodiscard]] nanobind::str file_name(const std::string& name);

using IntTuple = nanobind::typed<nanobind::tuple, int, nanobind::ellipsis>;
[[nodiscard]] IntTuple to_tuple(const std::vector<std::uint64_t>& shape);

using Metadata = std::vector<std::pair<std::string, std::string>>;
using TextDict = nanobind::typed<nanobind::dict, nanobind::str, nanobind::str>;
[[nodiscard]] TextDict to_dict(const Metadata& texts);

// One tensor of a list that Python objects share.
struct PyGlobalTensor {
  std::shared_ptr<const std::vector<GlobalTensor>> all;
  const GlobalTensor* tensor = nullptr;
};

// A folder that is ready to be saved.
struct PyFolderState {
  FolderState state;
};

void bind_engine(nanobind::module_& module);
void bind_folder(nanobind::module_& module);
void bind_loss(nanobind::module_& module);
void bind_objects(nanobind::module_& module);
void bind_options(nanobind::module_& module);
void bind_patch(nanobind::module_& module);
void bind_reading(nanobind::module_& module);
void bind_settings(nanobind::module_& module);
void bind_store(nanobind::module_& module);
void bind_store_reports(nanobind::module_& module);
void bind_whole_state(nanobind::module_& module);
void bind_writing(nanobind::module_& module);

}  // namespace bitsnap::python
