// Guesses roles from names.
//
// The names are those of state dicts: torch ("exp_avg", "exp_avg_sq"), Megatron-LM, Apex and DeepSpeed (masters),
// Hugging Face (weights by module path). Only whole parts of a path count: "master_token" is no master. A wrong guess
// could make a tensor lose bits under a loss rule.
#include <algorithm>
#include <array>
#include <span>

#include <bitsnap/tensor.hpp>

#include "tensor/name_parts.hpp"

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

constexpr std::array<std::string_view, 20> kMasters{
    "master", "masters", "master_weight", "master_weights", "master_param", "master_params", "main_param",
    "main_params",
    // Megatron-LM and Apex
    "fp32_param", "fp32_params", "fp32_from_fp16", "fp32_from_fp16_params", "fp32_from_float16_groups",
    "shard_fp32_from_float16_groups",
    // DeepSpeed
    "fp32_groups", "fp32_groups_flat", "fp32_flat_groups", "single_partition_of_fp32_groups", "fp32_partitioned_groups",
    "fp32_partitioned_groups_flat"};

bool is_one_of(std::string_view part, std::span<const std::string_view> words) noexcept {
  return std::ranges::find(words, part) != words.end();
}

// Underscores separate the words of a part.
bool has_word(std::string_view part, std::string_view word) noexcept {
  const std::size_t at = part.find(word);
  if (at == std::string_view::npos) return false;
  const std::size_t end = at + word.size();
  return (at == 0 || part[at - 1] == '_') && (end == part.size() || part[end] == '_');
}

// Step counters, random-generator states and learning rates lie beside the moments and are no weights.
bool is_beside_weights(std::string_view part) noexcept {
  return part.ends_with("optimizer") || part.ends_with("optim") || part.ends_with("scheduler") || has_word(part, "rng");
}

// Whether the predicate holds for any part of a name.
template <typename Predicate>
bool any_part(std::string_view name, Predicate is_so) noexcept {
  while (!name.empty()) {
    const std::size_t end = std::min(name.find_first_of(tensor::kNameSeparators), name.size());
    if (is_so(name.substr(0, end))) return true;
    name.remove_prefix(std::min(end + 1, name.size()));
  }
  return false;
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
  bool is_moment = false;
  bool is_master = false;
  bool is_beside = false;
  const auto is_square = [&](std::string_view part) {
    is_moment = is_moment || part == "exp_avg";
    is_master = is_master || is_one_of(part, kMasters);
    is_beside = is_beside || is_beside_weights(part);
    return part == "exp_avg_sq" || part == "max_exp_avg_sq";
  };
  if (any_part(tensor_name, is_square)) return Role::exp_avg_sq;
  if (is_moment) return Role::exp_avg;
  if (is_master && dtype == DType::f32) return Role::master;
  return is_beside ? Role::other : Role::weight;
}

}  // namespace bitsnap
