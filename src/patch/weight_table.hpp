// Weights by name, as callers give them. Checks what they give; refers to their memory.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <bitsnap/patch.hpp>

#include "base/bytes.hpp"

namespace bitsnap::patch {

class WeightTable {
 public:
  // invalid_argument for a name that occurs twice, a size that does not fit dtype and shape, missing memory, and
  // tensors that share some of their memory but not all. `whose`, for messages: "the weights".
  [[nodiscard]] static Result<WeightTable> make(std::span<const WeightMemory> weights, std::string_view whose);

  [[nodiscard]] std::span<const WeightMemory> all() const noexcept { return weights_; }
  [[nodiscard]] const WeightMemory* find(std::string_view name) const noexcept;
  // The tensors that have none of the names of `changed`, ascending by name.
  [[nodiscard]] std::vector<const WeightMemory*> without(std::span<const Patch::Tensor> changed) const;

 private:
  std::span<const WeightMemory> weights_;
  std::vector<std::size_t> by_name_;  // numbers in weights_, ascending by name
};

[[nodiscard]] inline ConstByteSpan bytes_of(const WeightMemory& tensor) noexcept {
  return {tensor.memory, static_cast<std::size_t>(tensor.size_bytes)};
}
[[nodiscard]] std::string dtype_name_of(const WeightMemory& tensor);
// "BF16 [4, 8]", for messages.
[[nodiscard]] std::string describe(std::string_view dtype, std::span<const std::uint64_t> shape);
[[nodiscard]] inline bool is_same_memory(const WeightMemory& a, const WeightMemory& b) noexcept {
  return a.memory == b.memory && a.size_bytes == b.size_bytes;
}

// Hashes tensors that a patch does not change: their names, then their bytes, ascending by name. docs/spec/patch.md,
// "Unchanged tensors".
void hash_tensors(std::span<const WeightMemory* const> tensors, std::vector<std::uint64_t>& to);

}  // namespace bitsnap::patch
