// The states of all ranks of a checkpoint as one.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <bitsnap/convert.hpp>
#include <bitsnap/folder.hpp>
#include <bitsnap/store.hpp>

#include "bindings.hpp"
#include "python_error.hpp"
#include "python_value.hpp"
#include "run_context.hpp"

namespace nb = nanobind;

namespace bitsnap::python {

class WholeState {
 public:
  std::string name;  // for messages: the path of the first shard
  std::vector<std::shared_ptr<const Snapshot>> shards;
  std::shared_ptr<const std::vector<GlobalTensor>> tensors;
  std::vector<TensorInfo> infos;  // of the same tensors
  std::optional<Value> tree;
  std::vector<std::string> left_out;

  // Each chunk is decoded once, and straight into the memory of the caller.
  [[nodiscard]] Result<void> read(std::span<const Snapshot::ReadRequest> requests, const RunOptions& run) const {
    std::map<std::uint32_t, std::vector<Snapshot::BoxRequest>> boxes;
    std::map<std::uint32_t, std::uint64_t> bytes;
    std::uint64_t total = 0;
    for (const Snapshot::ReadRequest& request : requests) {
      for (const TensorPart& part : (*tensors)[request.tensor].parts) {
        boxes[part.shard].push_back(box_of(infos[request.tensor], part, request.out));
        const std::uint64_t own = shards[part.shard]->tensors()[part.tensor].size_bytes;
        bytes[part.shard] += own;
        total += own;
      }
    }
    std::uint64_t before = 0;
    for (const auto& [shard, of_shard] : boxes) {
      RunOptions own = run;
      if (run.progress) {
        own.progress = [&run, before, total](std::uint64_t done, std::uint64_t) {
          return run.progress(before + done, total);
        };
      }
      auto read = shards[shard]->read_boxes(of_shard, own);
      if (!read) return read;
      before += bytes[shard];
    }
    return {};
  }

 private:
  static Snapshot::BoxRequest box_of(const TensorInfo& whole, const TensorPart& part, std::span<std::byte> out) {
    Snapshot::BoxRequest box{part.tensor, std::vector<std::uint64_t>(part.extent.size()), part.extent, out.data(), {}};
    std::uint64_t elements = 1;
    for (const std::uint64_t extent : whole.shape) elements *= extent;
    box.strides.resize(whole.shape.size());
    auto stride = static_cast<std::int64_t>(whole.size_bytes / std::max<std::uint64_t>(elements, 1));
    for (std::size_t i = whole.shape.size(); i-- > 0;) {
      box.strides[i] = stride;
      box.out += static_cast<std::int64_t>(part.offset[i]) * stride;
      stride *= static_cast<std::int64_t>(whole.shape[i]);
    }
    return box;
  }
};

Result<PyWholeState> open_whole_state(const Store& store, std::uint64_t step) {
  auto opened = open_all_shards(store, step);
  if (!opened) return tl::unexpected(std::move(opened).error());
  auto whole = std::make_shared<WholeState>();
  whole->shards = std::move(opened->snapshots);
  whole->tensors = std::move(opened->tensors);
  whole->name = whole->shards.front()->name();
  if (std::ranges::any_of(whole->shards, [](const auto& shard) { return is_folder(*shard); })) {
    return tl::unexpected(
        Error(ErrorKind::unsupported, "a shard holds a folder, and no state: open it with shard=").within(whole->name));
  }
  auto training = training_state(whole->shards, *whole->tensors);
  if (!training) return tl::unexpected(std::move(training).error());
  for (TensorSource& source : training->state.tensors) whole->infos.push_back(std::move(source.info));
  whole->tree = std::move(training->state.tree);
  whole->left_out = std::move(training->left_out);
  // What is read below writes into memory by these shapes.
  const auto is_same = [](const TensorInfo& info, const GlobalTensor& tensor) {
    return info.dtype_name == tensor.dtype_name && info.shape == tensor.shape;
  };
  if (!std::ranges::equal(whole->infos, *whole->tensors, is_same)) {
    return tl::unexpected(
        Error(ErrorKind::corrupt, "the tensors of the shards are not those of the tensor index").within(whole->name));
  }
  return PyWholeState{std::move(whole)};
}

namespace {

void read_whole(const PyWholeState& self,
                const std::vector<std::tuple<std::size_t, std::uintptr_t, std::uint64_t>>& requests, unsigned threads,
                nb::object progress) {
  std::vector<Snapshot::ReadRequest> native;
  for (const auto& [tensor, address, size_bytes] : requests) {
    if (tensor >= self.state->infos.size() || size_bytes != self.state->infos[tensor].size_bytes) {
      throw nb::value_error("the memory has not the size of the tensor");
    }
    native.push_back({tensor, memory_at(address, size_bytes)});
  }
  RunContext context(std::move(progress));
  context.call([&] { return self.state->read(native, context.run(threads)); });
}

}  // namespace

void bind_whole_state(nb::module_& module) {
  nb::class_<PyWholeState>(module, "WholeState")
      .def_prop_ro("tensors", [](const PyWholeState& self) { return PyTensorInfos{self.state, self.state->infos}; })
      .def_prop_ro("left_out", [](const PyWholeState& self) { return self.state->left_out; })
      .def_prop_ro("has_tree", [](const PyWholeState& self) { return self.state->tree.has_value(); })
      .def(
          "tree",
          [](const PyWholeState& self,
             const nb::typed<nb::callable, nb::object(std::string, nb::any)>& decode) -> nb::any {
            const std::optional<Value>& tree = self.state->tree;
            return nb::borrow<nb::any>(tree ? value_to_python(*tree, decode) : nb::none());
          },
          nb::arg("decode"))
      .def("read", &read_whole, nb::arg("requests"), nb::arg("threads"), nb::arg("progress").none());
}

}  // namespace bitsnap::python
