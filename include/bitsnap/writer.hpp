// Writing: one state into one .bsnap file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <ranges>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <bitsnap/dtype.hpp>
#include <bitsnap/error.hpp>
#include <bitsnap/quantization.hpp>
#include <bitsnap/settings.hpp>
#include <bitsnap/snapshot.hpp>
#include <bitsnap/tensor.hpp>
#include <bitsnap/value.hpp>

namespace bitsnap {

// The fp32 master of a weight, a tensor of the same state.
struct MasterSlice {
  std::string tensor;         // name of the tensor that holds the master
  std::uint64_t element = 0;  // of that tensor, the master of element 0 of the weight: a buffer may hold many masters

  friend bool operator==(const MasterSlice&, const MasterSlice&) = default;
};

// A tensor to be stored. Its bytes are read chunk by chunk, mostly once, by several threads at a time.
struct TensorSource {
  // A tensor in memory, which must outlive the save: `data` is a contiguous range, such as a vector<float> or a
  // span<const std::byte>. The role is guessed from the name. invalid_argument if dtype and shape need another number
  // of bytes than `data` has; DType::opaque takes any number.
  [[nodiscard]] static Result<TensorSource> of(std::string name, DType dtype, std::vector<std::uint64_t> shape,
                                               std::span<const std::byte> data);
  template <std::ranges::contiguous_range Data>
    requires std::ranges::sized_range<Data> && std::ranges::borrowed_range<Data> &&
             std::is_trivially_copyable_v<std::ranges::range_value_t<Data>>
  [[nodiscard]] static Result<TensorSource> of(std::string name, DType dtype, std::vector<std::uint64_t> shape,
                                               Data&& data) {
    const std::span<const std::byte> bytes = std::as_bytes(std::span(data));
    return of(std::move(name), dtype, std::move(shape), bytes);
  }

  TensorInfo info;
  // Memory of the caller, which must outlive the save; nullptr: `read` is used.
  const std::byte* data = nullptr;
  // Fills `out` with the bytes from `offset` on. Thread-safe.
  std::function<Result<void>(std::uint64_t offset, std::span<std::byte> out)> read = nullptr;
  // Set this if reading a few bytes costs as much as reading the whole tensor, as for a tensor on another device.
  // The tensor is then read once, when it is stored, and not sampled before.
  bool read_brings_all = false;
  // For a first moment of Adam; replaces SaveOptions::adam.
  std::optional<AdamNumbers> adam = {};
  // The F32 elements that this BF16 or F16 tensor is the rounding of. Only the differences from the rounding are
  // stored. nullopt: bitsnap searches for the master by bits and names. A wrong master costs space: the tensor is
  // stored as if it had none, still bit for bit.
  std::optional<MasterSlice> master = std::nullopt;
};

// Tensors of a state that are in the memory of a device. The engine copies them with one call, so that the copies
// follow one another without the processor. Everything else that reads a state uses their TensorSource::read.
struct DeviceTensors {
  std::vector<std::size_t> tensors;  // their indices in State::tensors, ascending
  // Copies the tensors as a whole, each to the span with its number in `tensors`, and returns when all are there. A
  // tensor that takes no room, such as an alias, has an empty span; all others lie in one range of memory.
  std::function<Result<void>(std::span<const std::span<std::byte>> to)> copy;
  // Prepares memory for many such copies, as cudaHostRegister does. The engine calls it once for a slot of its arena,
  // on the thread that saves, and destroys what it returns before it unmaps the slot or gives its pages back. May be
  // null.
  std::function<std::shared_ptr<void>(std::span<std::byte> memory)> pin = nullptr;
};

struct State {
  std::vector<TensorSource> tensors;  // names are unique; an alias comes after the tensor that it names
  std::optional<Value> tree;
  std::vector<std::pair<std::string, std::string>> metadata;
  // The header, verbatim, of the safetensors file whose data these tensors are, in the order of the file.
  std::optional<std::string> safetensors_header = std::nullopt;
  std::optional<DeviceTensors> device_tensors = std::nullopt;
};

struct SaveOptions {
  CodingSettings settings = {};  // without CodingSettings::base, which is a rule for stores
  // Adam's values for tensors without their own. The loss rule update_step needs them; they are never guessed.
  std::optional<AdamNumbers> adam = {};
  std::shared_ptr<const Base> base = nullptr;  // chunks may be coded against it; nullptr: write a keyframe
  bool overwrite = false;                      // replace an existing file; otherwise it is invalid_argument
  unsigned threads = 0;                        // 0: all that this process may use
  Progress progress = nullptr;
  // Called with what was written, before it gets its name. After an error, which save_snapshot() returns, there is no
  // new file, and one that existed before is unchanged.
  std::function<Result<void>(const Snapshot& written)> check = nullptr;
};

struct SaveSummary {
  SnapshotId id;
  std::uint64_t raw_bytes = 0;     // of all tensors; aliases are not counted again
  std::uint64_t stored_bytes = 0;  // of the file
  std::uint64_t chunks = 0;
};

// Writes the state to `path`, completely or not at all: it writes and syncs a temporary file in the same directory,
// renames it, and syncs the directory. The snapshot is durable when the call returns. The same state, base and settings
// give the same bytes on every CPU level and for any number of threads.
[[nodiscard]] Result<SaveSummary> save_snapshot(const std::string& path, const State& state,
                                                const SaveOptions& options = {});

struct SnapshotBytes {
  std::vector<std::byte> bytes;  // of the file
  SaveSummary summary;
};

// The same bytes in memory. SaveOptions::overwrite and check are not used.
[[nodiscard]] Result<SnapshotBytes> dump_snapshot(const State& state, const SaveOptions& options = {});

}  // namespace bitsnap
