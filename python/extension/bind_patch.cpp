// Patches between versions of weights.
#include <cstdint>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <bitsnap/patch.hpp>

#include "bindings.hpp"
#include "python_error.hpp"
#include "run_context.hpp"

namespace nb = nanobind;

namespace bitsnap::python {

namespace {

// Name, dtype, shape, address, size in bytes.
using WeightTuple = std::tuple<std::string, std::string, std::vector<std::uint64_t>, std::uintptr_t, std::uint64_t>;
using WeightTuples = std::vector<WeightTuple>;

std::vector<WeightMemory> weights_of(const WeightTuples& tuples) {
  std::vector<WeightMemory> weights;
  weights.reserve(tuples.size());
  for (const auto& [name, dtype, shape, address, size_bytes] : tuples) {
    weights.push_back({.name = name,
                       .dtype = dtype_from_name(dtype),
                       .dtype_name = dtype,
                       .shape = shape,
                       .memory = memory_at(address, size_bytes).data(),
                       .size_bytes = size_bytes});
  }
  return weights;
}

nb::bytes make(const WeightTuples& weights, const WeightTuples& base, unsigned threads, bool hash_unchanged,
               const std::string& from, const std::string& to, const Metadata& metadata) {
  RunContext context{nb::none()};
  const std::vector<std::byte> patch = context.call([&] {
    return make_patch(weights_of(weights), weights_of(base),
                      {.threads = usable_threads(threads),
                       .hash_unchanged = hash_unchanged,
                       .from = from,
                       .to = to,
                       .metadata = metadata});
  });
  return nb::bytes(patch.data(), patch.size());
}

// A patch and the bytes that it refers to.
struct NativePatch {
  nb::bytes bytes;
  Patch patch;
};

NativePatch open(nb::bytes bytes) {
  const std::span<const std::byte> memory(reinterpret_cast<const std::byte*>(bytes.c_str()), bytes.size());
  RunContext context{nb::none()};
  return {std::move(bytes), context.call([&] { return Patch::open(memory); })};
}

StagedPatch stage(const NativePatch& self, const WeightTuples& weights, unsigned threads, bool verify_all) {
  RunContext context{nb::none()};
  return context.call([&] {
    return self.patch.stage(weights_of(weights),
                            {.threads = usable_threads(threads), .verify = verify_all ? Verify::all : Verify::changed});
  });
}

std::string_view state_of(const NativePatch& self, const WeightTuples& weights, unsigned threads) {
  RunContext context{nb::none()};
  static constexpr std::string_view kNames[] = {"applicable", "applied", "partly", "other"};
  const PatchState state =
      context.call([&] { return self.patch.state_of(weights_of(weights), usable_threads(threads)); });
  return kNames[static_cast<std::size_t>(state)];
}

}  // namespace

void bind_patch(nb::module_& module) {
  module.def("make_patch", &make, nb::arg("weights"), nb::arg("base"), nb::arg("threads"), nb::arg("hash_unchanged"),
             nb::arg("from_version"), nb::arg("to_version"), nb::arg("metadata"));

  nb::class_<StagedPatch>(module, "NativeStagedPatch")
      .def(
          "apply",
          [](StagedPatch& self, unsigned threads) {
            RunContext context{nb::none()};
            context.call([&]() -> Result<void> {
              self.apply(usable_threads(threads));
              return {};
            });
          },
          nb::arg("threads"))
      .def_prop_ro("changed_elements", &StagedPatch::changed_elements)
      .def_prop_ro("memory_bytes", &StagedPatch::memory_bytes)
      .def(
          "changes",
          [](const StagedPatch& self, const std::string& tensor) {
            RunContext context{nb::none()};
            const StagedPatch::Changes changes = context.call([&] { return self.changes(tensor); });
            const auto places = std::as_bytes(std::span(changes.places));
            return nb::make_tuple(nb::bytes(places.data(), places.size()),
                                  nb::bytes(changes.values.data(), changes.values.size()));
          },
          nb::arg("tensor"), nb::sig("def changes(self, tensor: str) -> tuple[bytes, bytes]"),
          "Places as uint64, and values of the size of an element each.");

  nb::class_<NativePatch>(module, "NativePatch")
      .def(
          "__init__", [](NativePatch* self, nb::bytes bytes) { new (self) NativePatch(open(std::move(bytes))); },
          nb::arg("patch"))
      .def("stage", &stage, nb::arg("weights"), nb::arg("threads"), nb::arg("verify_all"))
      .def("state_of", &state_of, nb::arg("weights"), nb::arg("threads"))
      .def_prop_ro("from_version", [](const NativePatch& self) { return self.patch.from(); })
      .def_prop_ro("to_version", [](const NativePatch& self) { return self.patch.to(); })
      .def_prop_ro("expected_id", [](const NativePatch& self) { return self.patch.expected_id().to_hex(); })
      .def_prop_ro("result_id", [](const NativePatch& self) { return self.patch.result_id().to_hex(); })
      .def_prop_ro("metadata", [](const NativePatch& self) { return to_dict(self.patch.metadata()); })
      .def(
          "tensors",
          [](const NativePatch& self) {
            std::vector<std::tuple<std::vector<std::string>, std::string, std::vector<std::uint64_t>>> tensors;
            for (const Patch::Tensor& tensor : self.patch.tensors()) {
              tensors.emplace_back(tensor.names, tensor.dtype_name, tensor.shape);
            }
            return tensors;
          },
          "Names, dtype and shape of each tensor that changes.");
}

}  // namespace bitsnap::python
