// Snapshots: opening, reading into memory of the caller, inspecting, verifying. Memory is passed as (address, size);
// bitsnap/_tensors/arrays.py allocates and owns the tensors.
#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <bitsnap/snapshot.hpp>

#include "bindings.hpp"
#include "gil.hpp"
#include "parallel_pieces.hpp"
#include "python_error.hpp"
#include "python_source.hpp"
#include "python_value.hpp"
#include "report_class.hpp"
#include "run_context.hpp"

namespace nb = nanobind;

namespace bitsnap::python {

namespace {

// Reads a part of a tensor with several threads, in pieces of whole chunks.
Result<void> read_range(const Snapshot& snapshot, std::size_t tensor, std::uint64_t offset, std::span<std::byte> out,
                        unsigned threads) {
  const std::uint64_t chunk_bytes = kChunkElements * element_size(snapshot.tensors()[tensor].dtype);
  const std::uint64_t first = offset / chunk_bytes;
  const std::uint64_t pieces = out.empty() ? 0 : (offset + out.size() - 1) / chunk_bytes - first + 1;
  if (threads == 1 || pieces < 2 || out.size() < kParallelReadBytes) return snapshot.read_bytes(tensor, offset, out);

  return for_each_piece(pieces, threads, [&](std::uint64_t piece) {
    const std::uint64_t begin = std::max(offset, (first + piece) * chunk_bytes);
    const std::uint64_t end = std::min(offset + out.size(), (first + piece + 1) * chunk_bytes);
    return snapshot.read_bytes(tensor, begin, out.subspan(begin - offset, end - begin));
  });
}

const TensorInfo& tensor_at(const Snapshot& snapshot, std::size_t tensor) {
  if (tensor >= snapshot.tensors().size()) throw nb::index_error("no such tensor");
  return snapshot.tensors()[tensor];
}

void check_range(const TensorInfo& info, std::uint64_t offset, std::uint64_t size_bytes) {
  if (offset > info.size_bytes || size_bytes > info.size_bytes - offset) {
    throw nb::index_error("the range is not within the tensor");
  }
}

PySnapshot open_snapshot(nb::bytes path, const std::vector<nb::bytes>& base_paths) {
  OpenOptions options;
  for (const nb::bytes& base : base_paths) options.base_paths.push_back(to_path(base));
  const std::string file = to_path(path);
  RunContext context{nb::none()};
  return {context.call([&] { return Snapshot::open(file, options); })};
}

PySnapshot open_bytes(nb::bytes bytes, const PySnapshot* base) {
  const std::span<const std::byte> memory(reinterpret_cast<const std::byte*>(bytes.c_str()), bytes.size());
  // The last thread that uses the snapshot releases the bytes, and need not hold the GIL then.
  const std::shared_ptr<const void> owner(bytes.release().ptr(), [](void* object) {
    const GilAcquire gil;
    nb::handle(static_cast<PyObject*>(object)).dec_ref();
  });
  OpenOptions options;
  if (base != nullptr) options.bases = bases_of(base->snapshot);
  RunContext context{nb::none()};
  return {context.call([&] { return Snapshot::open_bytes(memory, owner, options); })};
}

void read(const PySnapshot& self, const std::vector<std::tuple<std::size_t, std::uintptr_t, std::uint64_t>>& requests,
          unsigned threads, nb::object progress) {
  std::vector<Snapshot::ReadRequest> native;
  native.reserve(requests.size());
  for (const auto& [tensor, address, size_bytes] : requests) {
    if (size_bytes != tensor_at(*self.snapshot, tensor).size_bytes) {
      throw nb::value_error("the memory has not the size of the tensor");
    }
    native.push_back({tensor, memory_at(address, size_bytes)});
  }
  RunContext context(std::move(progress));
  context.call([&] { return self.snapshot->read(native, context.run(threads)); });
}

void read_bytes(const PySnapshot& self, std::size_t tensor, std::uint64_t offset, std::uintptr_t address,
                std::uint64_t size_bytes, unsigned threads) {
  check_range(tensor_at(*self.snapshot, tensor), offset, size_bytes);
  RunContext context{nb::none()};
  context.call([&] {
    return read_range(*self.snapshot, tensor, offset, memory_at(address, size_bytes), usable_threads(threads));
  });
}

std::vector<Damage> verify_snapshot(const PySnapshot& self, bool decode, unsigned threads, nb::object progress) {
  RunContext context(std::move(progress));
  return context.call([&] { return self.snapshot->verify(decode, context.run(threads)); });
}

std::vector<DamagedTensor> damaged_tensors(const PySnapshot& self, unsigned threads, nb::object progress) {
  RunContext context(std::move(progress));
  return context.call([&] { return self.snapshot->damaged_tensors(context.run(threads)); });
}

// The costs of the chunks of one stream.
struct StreamSummary {
  std::optional<std::size_t> tensor;
  std::uint64_t raw_bytes = 0;
  std::uint64_t stored_bytes = 0;
  std::uint64_t chunks = 0;
  std::uint64_t chunks_with_base = 0;
  std::uint32_t depth = 0;
  std::map<std::string, std::uint64_t> codecs;
  std::string reason;
  std::optional<LossReport> quantizer;
};

Result<std::vector<StreamSummary>> summarize(const Snapshot& snapshot) {
  std::vector<StreamSummary> summaries;
  summaries.reserve(snapshot.streams().size());
  for (std::size_t stream = 0; stream < snapshot.streams().size(); ++stream) {
    const StreamInfo& info = snapshot.streams()[stream];
    StreamSummary& summary = summaries.emplace_back();
    summary.tensor = info.tensor;
    summary.chunks = info.chunk_count();
    summary.reason = snapshot.reason(stream);
    summary.quantizer = snapshot.quantizer(stream);
    for (std::uint64_t i = 0; i < summary.chunks; ++i) {
      const Result<ChunkInfo> chunk = snapshot.chunk_info(stream, i);
      if (!chunk) return tl::unexpected(chunk.error());
      summary.raw_bytes += chunk->raw_bytes;
      summary.stored_bytes += chunk->stored_bytes;
      if (chunk->uses_base) ++summary.chunks_with_base;
      summary.depth = std::max(summary.depth, chunk->depth);
      ++summary.codecs[std::string(chunk->codec)];
    }
  }
  return summaries;
}

// Python objects of tensors exist only as long as they are used.
struct PyTensorInfo {
  std::shared_ptr<const void> owner;
  const TensorInfo* info = nullptr;
};

PyTensorInfo tensor_in(const PyTensorInfos& self, std::size_t index) {
  if (index >= self.infos.size()) throw nb::index_error("there is no such tensor");
  return {self.owner, &self.infos[index]};
}

}  // namespace

TextDict to_dict(const Metadata& texts) {
  TextDict result;
  for (const auto& [key, value] : texts) result[nb::str(key.data(), key.size())] = value;
  return result;
}

IntTuple to_tuple(const std::vector<std::uint64_t>& shape) {
  nb::object tuple = nb::steal(PyTuple_New(static_cast<Py_ssize_t>(shape.size())));
  if (!tuple.is_valid()) throw nb::python_error();
  for (std::size_t i = 0; i < shape.size(); ++i) {
    PyTuple_SetItem(tuple.ptr(), static_cast<Py_ssize_t>(i), nb::cast(shape[i]).release().ptr());
  }
  return nb::borrow<IntTuple>(tuple);
}

namespace {

void bind_tensor_info(nb::module_& module) {
  nb::class_<PyTensorInfo>(module, "TensorInfo")
      .def_prop_ro("name", [](const PyTensorInfo& self) { return std::string_view(self.info->name); })
      .def_prop_ro("dtype", [](const PyTensorInfo& self) { return std::string_view(self.info->dtype_name); })
      .def_prop_ro("shape", [](const PyTensorInfo& self) { return to_tuple(self.info->shape); })
      .def_prop_ro("size_bytes", [](const PyTensorInfo& self) { return self.info->size_bytes; })
      .def_prop_ro("item_bytes", [](const PyTensorInfo& self) { return element_size(self.info->dtype); })
      .def_prop_ro("role", [](const PyTensorInfo& self) { return role_name(self.info->role); })
      .def_prop_ro("alias_of", [](const PyTensorInfo& self) { return self.info->alias_of; })
      .def_prop_ro("global_shape",
                   [](const PyTensorInfo& self) {
                     return self.info->shard ? std::optional(to_tuple(self.info->shard->global_shape)) : std::nullopt;
                   })
      .def_prop_ro("offset",
                   [](const PyTensorInfo& self) {
                     return self.info->shard ? std::optional(to_tuple(self.info->shard->offset)) : std::nullopt;
                   })
      .def_prop_ro("global_name", [](const PyTensorInfo& self) {
        return self.info->shard ? std::string_view(self.info->shard->global_name) : std::string_view();
      });

  nb::class_<PyTensorInfos>(module, "TensorInfos", "The tensors of a snapshot, or of a whole checkpoint, in order.")
      .def("__len__", [](const PyTensorInfos& self) { return self.infos.size(); })
      .def("__getitem__", &tensor_in, nb::arg("index"));

  nb::class_<StreamSummary>(module, "StreamSummary")
      .def_ro("tensor", &StreamSummary::tensor)
      .def_ro("raw_bytes", &StreamSummary::raw_bytes)
      .def_ro("stored_bytes", &StreamSummary::stored_bytes)
      .def_ro("chunks", &StreamSummary::chunks)
      .def_ro("chunks_with_base", &StreamSummary::chunks_with_base)
      .def_ro("depth", &StreamSummary::depth)
      .def_ro("codecs", &StreamSummary::codecs)
      .def_ro("reason", &StreamSummary::reason)
      .def_ro("quantizer", &StreamSummary::quantizer);

  ReportClass<Damage>(module, "Damage", "One damaged place of a snapshot.")
      .field("where", [](const Damage& self) { return text_of_message(self.where); })
      .field("error", &Damage::error);
  ReportClass<DamagedTensor>(module, "DamagedTensor", "A tensor of a snapshot that cannot be read.")
      .field("tensor", &DamagedTensor::tensor, "Its number.")
      .field("error", &DamagedTensor::error);
  ReportClass<BaseReference>(module, "BaseReference", "A snapshot that reading this one needs.")
      .field(
          "id", [](const BaseReference& self) { return self.id.to_hex(); }, "32 hexadecimal digits.")
      .field("name", &BaseReference::name, "The name of the file when this snapshot was written.");
}

}  // namespace

void bind_reading(nb::module_& module) {
  bind_tensor_info(module);

  nb::class_<PySnapshot>(module, "Snapshot")
      .def_static("open", &open_snapshot, nb::arg("path"), nb::arg("base_paths"))
      .def_static("of_bytes", &open_bytes, nb::arg("data"), nb::arg("base").none())
      .def_prop_ro("id", [](const PySnapshot& self) { return self.snapshot->id().to_hex(); })
      .def_prop_ro("path",
                   [](const PySnapshot& self) {
                     const std::string& name = self.snapshot->name();
                     return nb::bytes(name.data(), name.size());
                   })
      .def_prop_ro("file_bytes", [](const PySnapshot& self) { return self.snapshot->file_bytes(); })
      .def_prop_ro("writer", [](const PySnapshot& self) { return self.snapshot->writer(); })
      .def_prop_ro("policy", [](const PySnapshot& self) { return self.snapshot->policy(); })
      .def_prop_ro("objective", [](const PySnapshot& self) { return self.snapshot->objective(); })
      .def_prop_ro("metadata", [](const PySnapshot& self) { return to_dict(self.snapshot->metadata()); })
      .def_prop_ro("bases",
                   [](const PySnapshot& self) {
                     const auto bases = self.snapshot->bases();
                     return std::vector<BaseReference>(bases.begin(), bases.end());
                   })
      .def_prop_ro("tensors",
                   [](const PySnapshot& self) { return PyTensorInfos{self.snapshot, self.snapshot->tensors()}; })
      .def(
          "find", [](const PySnapshot& self, std::string_view name) { return self.snapshot->find(name); },
          nb::arg("name"))
      .def_prop_ro("has_tree", [](const PySnapshot& self) { return self.snapshot->has_tree(); })
      .def(
          "tree",
          [](const PySnapshot& self,
             const nb::typed<nb::callable, nb::object(std::string, nb::any)>& decode) -> nb::any {
            const std::optional<Value> tree = value_or_raise(self.snapshot->tree());
            return nb::borrow<nb::any>(tree ? value_to_python(*tree, decode) : nb::none());
          },
          nb::arg("decode"), "The tree of values, with decode(name, content) for each value of a type of its own.")
      .def("read", &read, nb::arg("requests"), nb::arg("threads"), nb::arg("progress").none())
      .def("read_bytes", &read_bytes, nb::arg("tensor"), nb::arg("offset"), nb::arg("address"), nb::arg("size_bytes"),
           nb::arg("threads"))
      .def("streams",
           [](const PySnapshot& self) {
             RunContext context{nb::none()};
             return context.call([&] { return summarize(*self.snapshot); });
           })
      .def("verify", &verify_snapshot, nb::arg("decode"), nb::arg("threads"), nb::arg("progress").none())
      .def("damaged_tensors", &damaged_tensors, nb::arg("threads"), nb::arg("progress").none());

  module.def(
      "scatter",
      [](std::uintptr_t address, std::uint64_t size_bytes, const StridedTuple& target) {
        const StridedMemory memory = strided_memory(target);
        const GilRelease release;
        memory.write(0, memory_at(address, size_bytes));
      },
      nb::arg("address"), nb::arg("size_bytes"), nb::arg("target"));
  module.def(
      "snapshot_id",
      [](nb::bytes path) {
        const std::string file = to_path(path);
        RunContext context{nb::none()};
        return context.call([&] { return snapshot_id(file); }).to_hex();
      },
      nb::arg("path"));
}

}  // namespace bitsnap::python
