// Writing: one state into one .bsnap file.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <bitsnap/error.hpp>
#include <bitsnap/quantization.hpp>
#include <bitsnap/settings.hpp>
#include <bitsnap/snapshot.hpp>
#include <bitsnap/tensor.hpp>
#include <bitsnap/value.hpp>

namespace bitsnap {

// The fp32 master of a weight, a tensor of the same state.
struct MasterSlice {
  std::string tensor;         // its name
  std::uint64_t element = 0;  // of it, beside element 0 of the weight: masters may stand one behind another in a buffer
};

// A tensor to be stored. Its bytes are read chunk by chunk, mostly once, from any thread, several at a time.
struct TensorSource {
  TensorInfo info;
  // Either memory of the caller, which has to outlive the call ...
  const std::byte* data = nullptr;
  // ... or a function that fills `out` with the bytes from `offset` on; thread-safe.
  std::function<Result<void>(std::uint64_t offset, std::span<std::byte> out)> read = nullptr;
  // Whether reading a few bytes costs as much as reading all of them, as of a tensor on another device: then nothing is
  // read before the tensor's turn.
  bool read_brings_all = false;
  // Of a first moment of Adam, in place of SaveOptions::adam.
  std::optional<AdamNumbers> adam = {};
  // Of which F32 elements this tensor of BF16 or F16 is the rounding, where the caller knows: it is stored as what
  // differs from that. nullopt: they are looked for, by bits and names. Where something is said, nothing is looked for;
  // where it is wrong, the tensor costs what it would without a master, and its bits come back all the same.
  std::optional<MasterSlice> master = std::nullopt;
};

struct State {
  std::vector<TensorSource> tensors;  // names are unique; an alias stands after the tensor it names
  std::optional<Value> tree;
  std::vector<std::pair<std::string, std::string>> metadata;
  std::optional<std::string> safetensors_header;  // verbatim, of the file these tensors are the data of, in its order
};

struct SaveOptions {
  CodingSettings settings = {};  // `base` is not used: a store chooses bases, here `base` below is one
  // What the rule update_step needs, where a tensor does not say it. It is never guessed.
  std::optional<AdamNumbers> adam = {};
  std::shared_ptr<const Base> base = nullptr;  // chunks may be coded against it; nullptr: a keyframe
  bool overwrite = false;                      // otherwise an existing file is invalid_argument
  unsigned threads = 0;                        // 0: all that this process may use
  Progress progress = nullptr;
};

struct SaveSummary {
  SnapshotId id;
  std::uint64_t raw_bytes = 0;     // of all tensors, aliases not counted again
  std::uint64_t stored_bytes = 0;  // of the file
  std::uint64_t chunks = 0;
};

// Writes the state to `path`, all of it or nothing: a temporary file beside it is synced and renamed, and the directory
// synced, so that the snapshot is durable when the call returns. The same state,
// base and options give the same bytes on every CPU level and number of threads.
[[nodiscard]] Result<SaveSummary> save_snapshot(const std::string& path, const State& state,
                                                const SaveOptions& options = {});

}  // namespace bitsnap
