// The words that frameworks put into tensor names to state the role.
#include "tensor/name_parts.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

namespace bitsnap::tensor {

std::vector<std::string_view> name_parts(std::string_view name) {
  constexpr std::string_view kRoleWords[] = {"model",
                                             "module",
                                             "master",
                                             "masters",
                                             "main_params",
                                             "fp32_param",
                                             "main_param",
                                             "optimizer",
                                             "optim",
                                             "state",
                                             "state_dict",
                                             "param",
                                             "fp32_from_fp16_params",
                                             "master_weights",
                                             "exp_avg",
                                             "exp_avg_sq",
                                             "max_exp_avg_sq",
                                             "momentum_buffer"};
  std::vector<std::string_view> parts;
  while (!name.empty()) {
    const std::size_t end = std::min(name.find_first_of(kNameSeparators), name.size());
    const std::string_view part = name.substr(0, end);
    if (!part.empty() && std::ranges::find(kRoleWords, part) == std::end(kRoleWords)) parts.push_back(part);
    name.remove_prefix(std::min(end + 1, name.size()));
  }
  return parts;
}

std::size_t likeness(std::string_view one, std::string_view other) {
  const auto a = name_parts(one);
  const auto b = name_parts(other);
  const auto end = std::mismatch(a.rbegin(), a.rend(), b.rbegin(), b.rend()).first;
  return static_cast<std::size_t>(end - a.rbegin());
}

std::string without_moment(std::string_view name) {
  std::string rest;
  while (!name.empty()) {
    const std::size_t end = std::min(name.find_first_of(kNameSeparators), name.size());
    const std::string_view part = name.substr(0, end);
    if (part != "momentum_buffer" && part != "exp_avg" && part != "exp_avg_sq" && part != "max_exp_avg_sq")
      (rest += part) += '.';
    name.remove_prefix(std::min(end + 1, name.size()));
  }
  return rest;
}

std::string bare_name(std::string_view name) {
  std::string bare;
  for (const std::string_view part : name_parts(name)) {
    bare += part;
    bare += '.';
  }
  return bare;
}

std::optional<std::string> name_of_averaged(std::string_view name) {
  constexpr std::string_view kWords[] = {"ema",         "ema_model",  "model_ema", "ema_state",     "ema_state_dict",
                                         "ema_weights", "ema_params", "shadow",    "shadow_params", "averaged_model",
                                         "swa_model"};
  std::string averaged;
  bool is_average = false;
  for (const std::string_view part : name_parts(name)) {
    if (std::ranges::find(kWords, part) != std::end(kWords)) {
      is_average = true;
    } else {
      averaged += part;
      averaged += '.';
    }
  }
  return is_average ? std::optional(std::move(averaged)) : std::nullopt;
}

}  // namespace bitsnap::tensor
