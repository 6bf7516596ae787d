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
#include <bitsnap/snapshot.hpp>
#include <bitsnap/tensor.hpp>
#include <bitsnap/value.hpp>

namespace bitsnap {

// Which codecs may be used, and how one is chosen.
enum class Policy : std::uint8_t {
  lossless,  // the best of all codecs, chunk by chunk
  lmc,       // LMC (arXiv 2505.09810): byte planes of the tensor or of its XOR with the base, Huffman coded
  bounded,   // as lossless, but for what the rules of loss let go: masters, second moments and first moments, each
             // within a bound
  bitsnap,  // BitSnap (arXiv 2511.12376): packed mask and changed values of weights against the base; moments lose what
            // clusters take from them
  raw,      // stored as it is
};

[[nodiscard]] std::string_view policy_name(Policy policy) noexcept;
[[nodiscard]] std::optional<Policy> policy_from_name(std::string_view name) noexcept;
// Whether it chooses codecs for an objective: `lossless` and `bounded`.
[[nodiscard]] bool chooses_by_objective(Policy policy) noexcept;

// What the policies `lossless` and `bounded` choose a chunk's codec for; the others have rules of their own. Times are
// modelled from recorded speeds and never measured, so that the choice is the same on every machine.
enum class Objective : std::uint8_t {
  ratio,     // least bytes
  balanced,  // least time of coding and writing, and in one case of ten of reading back, in a store of 2 GB/s
  speed,     // least time of coding, writing and reading back, in a store of 20 GB/s
};

[[nodiscard]] std::string_view objective_name(Objective objective) noexcept;
[[nodiscard]] std::optional<Objective> objective_from_name(std::string_view name) noexcept;

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
  Policy policy = Policy::lossless;
  Objective objective = Objective::balanced;
  std::uint64_t store_bytes_per_second = 0;  // what the objective counts on, 1 MB/s to 1 TB/s; 0: as it says
  // A codec for every chunk that it takes, where the policy or the objective would have another, and raw for all
  // others, be they unchanged; a base, or a peer, is given to it where there is one. Empty: none is forced.
  std::string codec = {};
  // What may be lost, before the rules of the policy: under `lossless`, `lmc` and `raw` nothing may unless it is said
  // here.
  std::vector<LossRule> loss = {};
  // What the rule update_step needs, where a tensor does not say it. It is never guessed.
  std::optional<AdamNumbers> adam = {};
  std::shared_ptr<const Base> base = nullptr;  // chunks may be coded against it; nullptr: a keyframe
  // The longest chain of chunks that decoding may have to follow, at most 32; an unchanged chunk is referred to however
  // deep it lies. 0: nothing is coded against the base, and an unchanged chunk is referred to only where it is held
  // without needing another snapshot. Such a snapshot begins and prolongs no chain, yet stores what is frozen once.
  std::uint32_t max_depth = 8;
  bool overwrite = false;  // otherwise an existing file is invalid_argument
  unsigned threads = 0;    // 0: all that this process may use
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
