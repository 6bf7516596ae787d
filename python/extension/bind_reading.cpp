// Snapshots: opening, reading into memory of the caller, looking inside, verifying.
//
// Memory crosses as (address, size): bitsnap/_arrays.py makes and keeps the tensors.
#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <nanobind/nanobind.h>
#include <nanobind/stl/function.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <bitsnap/safetensors.hpp>
#include <bitsnap/snapshot.hpp>

#include "bindings.hpp"
#include "python_error.hpp"
#include "python_source.hpp"
#include "python_value.hpp"
#include "run_context.hpp"

namespace nb = nanobind;

namespace bitsnap::python {

namespace {

// Below this a range is read by the calling thread alone, in bytes.
constexpr std::uint64_t kParallelRangeBytes = std::uint64_t{4} << 20;

std::span<std::byte> memory_at(std::uintptr_t address, std::uint64_t size_bytes) {
  return {reinterpret_cast<std::byte*>(address), size_bytes};
}

// Part of a tensor, over several threads in pieces of whole chunks. The error is that of the first failing piece.
Result<void> read_range(const Snapshot& snapshot, std::size_t tensor, std::uint64_t offset, std::span<std::byte> out,
                        unsigned threads) {
  const std::uint64_t chunk_bytes = kChunkElements * element_size(snapshot.tensors()[tensor].dtype);
  const std::uint64_t first = offset / chunk_bytes;
  const std::uint64_t pieces = out.empty() ? 0 : (offset + out.size() - 1) / chunk_bytes - first + 1;
  if (threads == 0) threads = std::max(1U, std::thread::hardware_concurrency());
  if (threads == 1 || pieces < 2 || out.size() < kParallelRangeBytes) return snapshot.read_bytes(tensor, offset, out);

  std::atomic<std::uint64_t> next = 0;
  std::vector<Result<void>> results(pieces);
  const auto work = [&] {
    for (std::uint64_t piece = next++; piece < pieces; piece = next++) {
      const std::uint64_t begin = std::max(offset, (first + piece) * chunk_bytes);
      const std::uint64_t end = std::min(offset + out.size(), (first + piece + 1) * chunk_bytes);
      results[piece] = snapshot.read_bytes(tensor, begin, out.subspan(begin - offset, end - begin));
      if (!results[piece]) next = pieces;
    }
  };
  {
    std::vector<std::jthread> helpers;
    const std::uint64_t wanted = std::min<std::uint64_t>(threads, pieces) - 1;
    try {
      for (std::uint64_t i = 0; i < wanted; ++i) helpers.emplace_back(work);
    } catch (const std::system_error&) {
      // Fewer threads do the same work.
    }
    work();
  }
  for (Result<void>& result : results) {
    if (!result) return std::move(result);
  }
  return {};
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

PySnapshot open(nb::bytes path, const std::vector<nb::bytes>& base_paths) {
  OpenOptions options;
  for (const nb::bytes& base : base_paths) options.base_paths.push_back(to_path(base));
  const std::string file = to_path(path);
  RunContext context{nb::none()};
  return {context.call([&] { return Snapshot::open(file, options); })};
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
  const RunOptions options{usable_threads(threads), context.progress()};
  context.call([&] { return self.snapshot->read(native, options); });
}

void read_bytes(const PySnapshot& self, std::size_t tensor, std::uint64_t offset, std::uintptr_t address,
                std::uint64_t size_bytes, unsigned threads) {
  check_range(tensor_at(*self.snapshot, tensor), offset, size_bytes);
  RunContext context{nb::none()};
  context.call([&] {
    return read_range(*self.snapshot, tensor, offset, memory_at(address, size_bytes), usable_threads(threads));
  });
}

std::vector<std::tuple<std::string, std::string, std::string>> verify(const PySnapshot& self, bool decode,
                                                                      unsigned threads, nb::object progress) {
  RunContext context(std::move(progress));
  const RunOptions options{usable_threads(threads), context.progress()};
  const std::vector<Damage> found = context.call([&] { return self.snapshot->verify(decode, options); });
  std::vector<std::tuple<std::string, std::string, std::string>> damage;
  damage.reserve(found.size());
  for (const Damage& each : found) {
    damage.emplace_back(each.where, std::string(error_kind_name(each.error.kind())), each.error.message());
  }
  return damage;
}

// What one stream's chunks cost, summed up.
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

// What a loss report holds, by the names of its fields.
nb::dict to_dict(const LossReport& report) {
  nb::dict result;
  result["name"] = quantization_name(report.quantization);
  result["amount"] = report.amount;
  result["bound"] = report.bound;
  result["next_update_bound"] = report.next_update_bound;
  result["all_updates_bound"] = report.all_updates_bound;
  const auto& adam = report.adam;
  result["adam"] = adam ? nb::object(nb::make_tuple(adam->beta1, adam->beta2, adam->epsilon, adam->step)) : nb::none();
  nb::dict reached;
  reached["elements"] = report.reached.elements;
  reached["changed"] = report.reached.changed;
  reached["finite"] = report.reached.finite;
  reached["nonzero"] = report.reached.nonzero;
  reached["past_nearest"] = report.reached.past_nearest;
  reached["max_absolute"] = report.reached.max_absolute;
  reached["max_relative"] = report.reached.max_relative;
  reached["mean_relative"] = report.reached.mean_relative();
  reached["mean_square"] = report.reached.mean_square();
  result["reached"] = reached;
  nb::dict updates;
  updates["elements"] = report.updates.elements;
  updates["largest"] = report.updates.largest;
  updates["sum"] = report.updates.sum;
  updates["sum_square"] = report.updates.sum_square;
  updates["sum_update"] = report.updates.sum_update;
  updates["sum_update_square"] = report.updates.sum_update_square;
  result["updates"] = updates;
  return result;
}

nb::object differences(const PySnapshot& a, const PySnapshot& b, unsigned threads, nb::object progress) {
  RunContext context(std::move(progress));
  const RunOptions options{usable_threads(threads), context.progress()};
  const auto found = context.call([&] { return compare(*a.snapshot, *b.snapshot, options); });
  constexpr const char* kKinds[] = {"equal", "changed", "only_in_a", "only_in_b", "incomparable"};
  nb::list result;
  for (const TensorDifference& each : found) {
    result.append(nb::make_tuple(each.name, kKinds[static_cast<std::size_t>(each.kind)], each.elements, each.changed,
                                 each.largest_ulp));
  }
  return result;
}

void bind_tensor_info(nb::module_& module) {
  nb::class_<TensorInfo>(module, "TensorInfo")
      .def_ro("name", &TensorInfo::name)
      .def_ro("dtype", &TensorInfo::dtype_name)
      .def_prop_ro("shape", [](const TensorInfo& self) { return nb::tuple(nb::cast(self.shape)); })
      .def_ro("size_bytes", &TensorInfo::size_bytes)
      .def_prop_ro("item_bytes", [](const TensorInfo& self) { return element_size(self.dtype); })
      .def_prop_ro("role", [](const TensorInfo& self) { return role_name(self.role); })
      .def_ro("alias_of", &TensorInfo::alias_of);

  nb::class_<StreamSummary>(module, "StreamSummary")
      .def_ro("tensor", &StreamSummary::tensor)
      .def_ro("raw_bytes", &StreamSummary::raw_bytes)
      .def_ro("stored_bytes", &StreamSummary::stored_bytes)
      .def_ro("chunks", &StreamSummary::chunks)
      .def_ro("chunks_with_base", &StreamSummary::chunks_with_base)
      .def_ro("depth", &StreamSummary::depth)
      .def_ro("codecs", &StreamSummary::codecs)
      .def_ro("reason", &StreamSummary::reason)
      .def_prop_ro("quantizer", [](const StreamSummary& self) -> nb::object {
        return self.quantizer ? nb::object(to_dict(*self.quantizer)) : nb::none();
      });
}

}  // namespace

void bind_reading(nb::module_& module) {
  bind_tensor_info(module);

  nb::class_<PySnapshot>(module, "Snapshot")
      .def_static("open", &open, nb::arg("path"), nb::arg("base_paths"))
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
      .def_prop_ro("metadata",
                   [](const PySnapshot& self) {
                     nb::dict result;
                     for (const auto& [key, value] : self.snapshot->metadata())
                       result[nb::str(key.data(), key.size())] = value;
                     return result;
                   })
      .def_prop_ro("bases",
                   [](const PySnapshot& self) {
                     std::vector<std::pair<std::string, std::string>> bases;
                     for (const BaseReference& base : self.snapshot->bases()) {
                       bases.emplace_back(base.id.to_hex(), base.name);
                     }
                     return bases;
                   })
      .def_prop_ro("tensors",
                   [](const PySnapshot& self) {
                     const auto tensors = self.snapshot->tensors();
                     return std::vector<TensorInfo>(tensors.begin(), tensors.end());
                   })
      .def(
          "find", [](const PySnapshot& self, std::string_view name) { return self.snapshot->find(name); },
          nb::arg("name"))
      .def_prop_ro("has_tree", [](const PySnapshot& self) { return self.snapshot->tree().has_value(); })
      .def(
          "tree",
          [](const PySnapshot& self, const nb::callable& decode) -> nb::object {
            const std::optional<Value>& tree = self.snapshot->tree();
            return tree ? value_to_python(*tree, decode) : nb::none();
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
      .def("verify", &verify, nb::arg("decode"), nb::arg("threads"), nb::arg("progress").none());

  module.def(
      "scatter",
      [](std::uintptr_t address, std::uint64_t size_bytes, const StridedTuple& target) {
        const StridedMemory memory = strided_memory(target);
        const nb::gil_scoped_release release;
        memory.write(0, memory_at(address, size_bytes));
      },
      nb::arg("address"), nb::arg("size_bytes"), nb::arg("target"));
  module.def("compare", &differences, nb::arg("a"), nb::arg("b"), nb::arg("threads"), nb::arg("progress").none());
  module.def(
      "peek_snapshot_id",
      [](nb::bytes path) {
        const std::string file = to_path(path);
        RunContext context{nb::none()};
        return context.call([&] { return peek_snapshot_id(file); }).to_hex();
      },
      nb::arg("path"));
}

}  // namespace bitsnap::python
