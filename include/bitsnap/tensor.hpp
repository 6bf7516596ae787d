// What a tensor is to bitsnap: a name, a dtype, a shape, a role, and contiguous little-endian row-major bytes.
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

// Elements of one chunk, whatever the dtype: the unit of coding, hashing, random access and parallel work. Chunk i of a
// weight, of its master and of its moments so covers the same parameters.
inline constexpr std::uint64_t kChunkElements = std::uint64_t{1} << 18;

// What a tensor is within the state of a training.
enum class Role : std::uint8_t { other, weight, master, exp_avg, exp_avg_sq };

[[nodiscard]] std::string_view role_name(Role role) noexcept;
[[nodiscard]] std::optional<Role> role_from_name(std::string_view name) noexcept;

// The role that a tensor's name and dtype suggest by the conventions of torch, Megatron-LM, DeepSpeed and Hugging Face.
[[nodiscard]] Role guess_role(std::string_view tensor_name, DType dtype) noexcept;

// The part of a sharded tensor that one rank holds: the tensor's own shape is the box's extent.
struct ShardBox {
  std::vector<std::uint64_t> global_shape;  // elements
  std::vector<std::uint64_t> offset;        // elements, as many as global_shape has

  friend bool operator==(const ShardBox&, const ShardBox&) = default;
};

struct TensorInfo {
  std::string name;
  DType dtype = DType::opaque;
  std::string dtype_name;  // as the source wrote it; "F4" has dtype opaque
  std::vector<std::uint64_t> shape;
  std::uint64_t size_bytes = 0;
  Role role = Role::other;
  std::optional<ShardBox> shard;
  std::optional<std::size_t> alias_of;  // index of the earlier tensor whose bytes these are (tied weights)

  // Elements as the codecs count them: size_bytes / element_size(dtype).
  [[nodiscard]] std::uint64_t element_count() const noexcept { return size_bytes / element_size(dtype); }
};

// Product of the shape and the size in bytes; invalid_argument where they do not fit in 63 bits.
[[nodiscard]] Result<std::uint64_t> shape_size_bytes(DType dtype, const std::vector<std::uint64_t>& shape);

}  // namespace bitsnap
