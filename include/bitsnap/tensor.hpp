// TensorInfo describes a tensor: its name, dtype, shape and role. The bytes of a tensor are contiguous, little-endian
// and row-major.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <bitsnap/dtype.hpp>
#include <bitsnap/error.hpp>

namespace bitsnap {

// Elements of one chunk, for every dtype. A chunk is the unit of coding, hashing, random access and parallel work.
// Chunk i of a weight, of its master and of its moments therefore covers the same parameters.
inline constexpr std::uint64_t kChunkElements = std::uint64_t{1} << 18;

// What a tensor is in the training. exp_avg and exp_avg_sq are the first and second moments of Adam.
enum class Role : std::uint8_t { other, weight, master, exp_avg, exp_avg_sq };

[[nodiscard]] std::string_view role_name(Role role) noexcept;
[[nodiscard]] std::optional<Role> role_from_name(std::string_view name) noexcept;

// The role that a tensor's name and dtype suggest by the conventions of torch, Megatron-LM, DeepSpeed and Hugging Face.
[[nodiscard]] Role guess_role(std::string_view tensor_name, DType dtype) noexcept;

// The part of a sharded tensor that one rank holds. The shape of the rank's tensor is the extent of the box.
struct ShardBox {
  std::vector<std::uint64_t> global_shape;  // elements in each dimension
  std::vector<std::uint64_t> offset;        // elements in each dimension
  // The name of the sharded tensor if it differs from the name of the rank's tensor, because a rank that holds several
  // boxes of one tensor needs a name for each; otherwise empty.
  std::string global_name = {};

  friend bool operator==(const ShardBox&, const ShardBox&) = default;
};

struct TensorInfo {
  std::string name;
  DType dtype = DType::opaque;
  std::string dtype_name;            // the name in the source: "F4" has dtype opaque
  std::vector<std::uint64_t> shape;  // elements in each dimension; empty for a scalar
  std::uint64_t size_bytes = 0;
  Role role = Role::other;
  std::optional<ShardBox> shard;
  std::optional<std::size_t> alias_of;  // index of an earlier tensor with the same memory (tied weights)

  // Elements as codecs count them; bytes for DType::opaque.
  [[nodiscard]] std::uint64_t element_count() const noexcept { return size_bytes / element_size(dtype); }
  // The name of the sharded tensor that this one is a part of, or its own name.
  [[nodiscard]] const std::string& global_name() const noexcept {
    return shard && !shard->global_name.empty() ? shard->global_name : name;
  }

  // The shape of that tensor.
  [[nodiscard]] const std::vector<std::uint64_t>& global_shape() const noexcept {
    return shard ? shard->global_shape : shape;
  }

  friend bool operator==(const TensorInfo&, const TensorInfo&) = default;
};

// The size of a tensor in bytes; one element for the shape []. invalid_argument if it does not fit in 63 bits.
[[nodiscard]] Result<std::uint64_t> shape_size_bytes(DType dtype, const std::vector<std::uint64_t>& shape);

}  // namespace bitsnap
