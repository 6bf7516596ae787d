// Patches: what changed between two versions of the weights, in memory. For policies that a trainer sends to rollout
// engines, and for replicas that follow a model. docs/spec/patch.md.
//
// A patch is small and complete: it names its tensors, holds hashes of what it applies to and of what it makes, and is
// itself under a hash. Applying has two parts. Patch::stage() checks the weights and decodes what changes; it writes to
// no weight, so that an engine may go on using them. StagedPatch::apply() writes the changed elements; it cannot fail.
// Weights that a patch does not apply to are refused by stage(), before anything is written.
//
// Functions return the errors that they name here, and resource_exhausted where memory is missing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <bitsnap/dtype.hpp>
#include <bitsnap/error.hpp>
#include <bitsnap/limits.hpp>
#include <bitsnap/snapshot.hpp>
#include <bitsnap/tensor.hpp>

namespace bitsnap {

// A tensor in the caller's memory: contiguous, little-endian, row-major. Tensors with the same address and size are
// tied: one tensor with several names. `memory` may be null for a tensor without elements.
struct WeightMemory {
  std::string name;
  DType dtype = DType::opaque;
  std::string dtype_name;            // as in TensorInfo; may be empty unless dtype is opaque
  std::vector<std::uint64_t> shape;  // elements in each dimension
  std::byte* memory = nullptr;       // only StagedPatch::apply() writes to it
  std::uint64_t size_bytes = 0;
};

struct PatchOptions {
  unsigned threads = 0;  // 0: all that this process may use
  // Also hashes what did not change, so that a receiver can ask for Verify::all. Tensors that are the same memory in
  // both versions are then read as well.
  bool hash_unchanged = false;
  std::string from = {};  // for people: the names of the versions
  std::string to = {};
  std::vector<std::pair<std::string, std::string>> metadata = {};
};

// The patch that turns `base` into `weights`. Both hold the same tensors, in any order: equal names, dtypes and shapes;
// otherwise invalid_argument. What did not change costs nothing but the reading, and what is the same memory in both
// not even that. The same weights give the same bytes on every CPU level and for any number of threads. The weights
// must not change during the call.
[[nodiscard]] Result<std::vector<std::byte>> make_patch(std::span<const WeightMemory> weights,
                                                        std::span<const WeightMemory> base,
                                                        const PatchOptions& options = {});

enum class Verify : std::uint8_t {
  changed,  // the parts of the weights in which anything changes, before anything is written
  all,      // every byte of all weights, and what the patch makes of them. Only for patches with hash_unchanged, and if
            // the weights have no tensors beside those of the patch's maker
};

struct StageOptions {
  unsigned threads = 0;  // 0: all that this process may use
  Verify verify = Verify::changed;
};

// The weights, compared with what a patch expects and makes.
enum class PatchState : std::uint8_t {
  applicable,  // they are what the patch applies to
  applied,     // they are what it makes
  partly,      // some parts are one, some the other: an application was interrupted
  other,       // neither
};

// What a patch changes in given weights. Independent of the patch; refers to the memory of the weights.
class StagedPatch {
 public:
  StagedPatch(StagedPatch&&) noexcept;
  StagedPatch& operator=(StagedPatch&&) noexcept;
  ~StagedPatch();

  // Writes the changed elements to the memory of the weights that were given to Patch::stage(), in parallel; nothing
  // else may use the weights meanwhile. They must not have changed since stage(). A process that dies in this call
  // leaves weights of which Patch::state_of() says `partly` or, if it died inside a part, `other`.
  void apply(unsigned threads = 0);

  // Each patch of several in one counts for itself.
  [[nodiscard]] std::uint64_t changed_elements() const noexcept;
  [[nodiscard]] std::uint64_t memory_bytes() const noexcept;  // that the staged changes take

  // The changes of one tensor, for receivers that write them themselves: ascending places of elements in the tensor,
  // and their new values, of the size of an element each. not_found if the patch has no such tensor.
  struct Changes {
    std::vector<std::uint64_t> places;
    std::vector<std::byte> values;
  };
  [[nodiscard]] Result<Changes> changes(const std::string& tensor) const;

  struct Impl;
  explicit StagedPatch(std::unique_ptr<Impl> impl) noexcept;

 private:
  std::unique_ptr<Impl> impl_;
};

// A patch that was checked against its hash. Immutable; any number of threads may use one at the same time.
class Patch {
 public:
  // The bytes of a patch, or of several, one after another, each of which applies to what the one before makes; their
  // memory must outlive this object. truncated, corrupt or unsupported for bytes that are no patch; invalid_argument if
  // two that follow each other do not fit.
  [[nodiscard]] static Result<Patch> open(std::span<const std::byte> bytes, const DecodeLimits& limits = {});
  Patch(Patch&&) noexcept;
  Patch& operator=(Patch&&) noexcept;
  ~Patch();

  // A tensor that changes. Names after the first are tied to it.
  struct Tensor {
    std::vector<std::string> names;
    DType dtype = DType::opaque;
    std::string dtype_name;
    std::vector<std::uint64_t> shape;
    std::uint64_t size_bytes = 0;
  };
  [[nodiscard]] std::span<const Tensor> tensors() const noexcept;
  [[nodiscard]] const std::string& from() const noexcept;
  [[nodiscard]] const std::string& to() const noexcept;
  [[nodiscard]] const std::vector<std::pair<std::string, std::string>>& metadata() const noexcept;
  // XXH3-128 of the hashes of all parts that change: as the patch expects them, and as it makes them.
  [[nodiscard]] SnapshotId expected_id() const noexcept;
  [[nodiscard]] SnapshotId result_id() const noexcept;

  // Checks the weights and decodes what changes in them. Writes nothing. The weights may have tensors that the patch
  // does not have. not_found if a tensor of the patch is missing; invalid_argument if one has another dtype or shape,
  // or if the weights are not what the patch applies to: then with the code `wrong_base`, and a message that says which
  // PatchState they are in, and where.
  [[nodiscard]] Result<StagedPatch> stage(std::span<const WeightMemory> weights,
                                          const StageOptions& options = {}) const;

  // Reads what changes in the weights, and compares it with both ends of the patch. Errors as stage(); unsupported for
  // several patches in one.
  [[nodiscard]] Result<PatchState> state_of(std::span<const WeightMemory> weights, unsigned threads = 0) const;

  struct Impl;
  explicit Patch(std::unique_ptr<Impl> impl) noexcept;

 private:
  std::unique_ptr<Impl> impl_;
};

// stage() and apply(), in one call.
[[nodiscard]] Result<void> apply_patch(std::span<const WeightMemory> weights, std::span<const std::byte> patch,
                                       const StageOptions& options = {});

}  // namespace bitsnap
