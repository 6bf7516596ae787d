// Roles, and what names tell of them.
//
// The names are those of state dicts as frameworks write them: torch ("exp_avg", "exp_avg_sq"), Megatron-LM and
// DeepSpeed
// ("fp32_from_fp16_params", "single_partition_of_fp32_groups", "main_params", "master"), Hugging Face (weights by
// module path).
#include <array>

#include <bitsnap/tensor.hpp>

namespace bitsnap {
namespace {

struct RoleRow {
  Role role;
  std::string_view name;
};

constexpr std::array<RoleRow, 5> kRoles{{{Role::other, "other"},
                                         {Role::weight, "weight"},
                                         {Role::master, "master"},
                                         {Role::exp_avg, "exp_avg"},
                                         {Role::exp_avg_sq, "exp_avg_sq"}}};

bool contains(std::string_view text, std::string_view part) noexcept {
  return text.find(part) != std::string_view::npos;
}

}  // namespace

std::string_view role_name(Role role) noexcept {
  for (const RoleRow& row : kRoles) {
    if (row.role == role) return row.name;
  }
  return "other";
}

std::optional<Role> role_from_name(std::string_view name) noexcept {
  for (const RoleRow& row : kRoles) {
    if (row.name == name) return row.role;
  }
  return std::nullopt;
}

Role guess_role(std::string_view tensor_name, DType dtype) noexcept {
  if (!is_float(dtype)) return Role::other;
  if (contains(tensor_name, "exp_avg_sq")) return Role::exp_avg_sq;
  if (contains(tensor_name, "exp_avg")) return Role::exp_avg;
  if (dtype == DType::f32) {
    for (const std::string_view part : {"master", "fp32_from", "fp32_groups", "main_param"}) {
      if (contains(tensor_name, part)) return Role::master;
    }
  }
  // Step counters, rng states and learning rates live beside the moments and are no weights.
  for (const std::string_view part : {"optimizer.", "optim.", "scheduler.", "rng"}) {
    if (contains(tensor_name, part)) return Role::other;
  }
  return Role::weight;
}

}  // namespace bitsnap
