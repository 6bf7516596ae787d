#include "tensor/moment_pairs.hpp"

#include <map>
#include <string>
#include <utility>

#include "tensor/name_parts.hpp"

namespace bitsnap::tensor {

std::vector<std::optional<std::size_t>> pair_moments(std::span<const TensorInfo> tensors) {
  const auto key_of = [](const TensorInfo& info) { return std::pair(without_moment(info.name), info.element_count()); };
  const auto is = [](const TensorInfo& info, Role role) {
    return info.role == role && info.dtype == DType::f32 && !info.alias_of;
  };
  std::map<std::pair<std::string, std::uint64_t>, std::size_t> squares;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    // AMSGrad's maximum of the second moments, not a second moment.
    if (is(tensors[i], Role::exp_avg_sq) && !tensors[i].name.ends_with("max_exp_avg_sq")) {
      squares.emplace(key_of(tensors[i]), i);
    }
  }
  std::vector<std::optional<std::size_t>> pairs(tensors.size());
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (!is(tensors[i], Role::exp_avg)) continue;
    if (const auto found = squares.find(key_of(tensors[i])); found != squares.end()) pairs[i] = found->second;
  }
  return pairs;
}

}  // namespace bitsnap::tensor
