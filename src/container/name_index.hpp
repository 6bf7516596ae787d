// Finds tensors by name: their numbers in the order of the hashes of their names, then of the names. No choice of names
// makes it slow.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include <bitsnap/tensor.hpp>

namespace bitsnap::container {

class NameIndex {
 public:
  NameIndex() = default;
  // Precondition: fewer than 2^32 tensors.
  explicit NameIndex(std::span<const TensorInfo> tensors);

  // `tensors`: those that it was made from, here and below.
  [[nodiscard]] std::optional<std::size_t> find(std::span<const TensorInfo> tensors,
                                                std::string_view name) const noexcept;
  // A tensor whose name another one has, too.
  [[nodiscard]] std::optional<std::size_t> find_duplicate(std::span<const TensorInfo> tensors) const noexcept;

 private:
  std::vector<std::uint64_t> entries_;  // 32 bits of the name's hash, then the number of the tensor
};

}  // namespace bitsnap::container
