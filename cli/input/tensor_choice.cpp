#include "cli/input/tensor_choice.hpp"

#include <algorithm>
#include <set>

#include <fmt/format.h>

#include <bitsnap/quantization.hpp>
#include <bitsnap/settings.hpp>
#include <bitsnap/text.hpp>

#include "cli/command.hpp"

namespace bitsnap::cli {

namespace {

Result<void> check_names(const State& state) {
  std::set<std::string_view> names;
  for (const TensorSource& tensor : state.tensors) {
    if (tensor.info.name.empty()) return fail(ErrorKind::invalid_argument, "a tensor would have no name");
    if (!names.insert(tensor.info.name).second) {
      return fail(ErrorKind::invalid_argument,
                  fmt::format("two tensors would have the name '{}'", printable(tensor.info.name)));
    }
  }
  return {};
}

// A dict of tensors alone. An alias of a tensor that is not there stands for itself.
void make_flat(State& state, const std::vector<bool>& kept) {
  std::vector<std::size_t> numbers(state.tensors.size());
  std::vector<TensorSource> tensors;
  for (std::size_t i = 0; i < state.tensors.size(); ++i) {
    if (!kept[i]) continue;
    numbers[i] = tensors.size();
    std::optional<std::size_t>& alias = state.tensors[i].info.alias_of;
    if (alias) alias = kept[*alias] ? std::optional(numbers[*alias]) : std::nullopt;
    tensors.push_back(std::move(state.tensors[i]));
  }
  state.tensors = std::move(tensors);
  state.tree.reset();
  state.safetensors_header.reset();
}

}  // namespace

Result<void> select_tensors(State& state, const TensorSelection& selection) {
  std::vector<bool> kept(state.tensors.size(), selection.only.empty());
  for (const std::string& pattern : selection.only) {
    bool fits_any = false;
    for (std::size_t i = 0; i < kept.size(); ++i) {
      const TensorInfo& info = state.tensors[i].info;
      if (!fits(LossRule{.name = pattern}, info.role, info.name)) continue;
      kept[i] = fits_any = true;
    }
    if (!fits_any) {
      return fail(ErrorKind::not_found, fmt::format("there is no tensor '{}'; `bitsnap inspect` lists them", pattern));
    }
  }
  make_flat(state, kept);
  if (!selection.strip) return {};
  for (TensorSource& tensor : state.tensors) {
    std::string& name = tensor.info.name;
    if (!name.starts_with(*selection.strip)) {
      return fail(ErrorKind::invalid_argument, fmt::format("the name of tensor '{}' does not begin with '{}'",
                                                           printable(name), printable(*selection.strip)));
    }
    name.erase(0, selection.strip->size());
  }
  return check_names(state);
}

Result<std::pair<std::string, std::string>> parse_mapping(const std::string& text) {
  const std::size_t at = text.find('=');
  if (at == std::string::npos) {
    return fail(ErrorKind::invalid_argument, fmt::format("--map {}: expected OLD=NEW", text));
  }
  return std::pair(text.substr(0, at), text.substr(at + 1));
}

Result<void> rename_tensors(State& state, const std::vector<std::string>& mappings) {
  std::vector<std::pair<std::string, std::string>> pairs;
  for (const std::string& text : mappings) {
    BITSNAP_ASSIGN(auto pair, parse_mapping(text));
    pairs.push_back(std::move(pair));
  }
  std::vector<bool> applied(pairs.size(), false);
  for (TensorSource& tensor : state.tensors) {
    std::string& name = tensor.info.name;
    const auto found = std::ranges::find_if(pairs, [&](const auto& pair) { return name.starts_with(pair.first); });
    if (found == pairs.end()) continue;
    applied[static_cast<std::size_t>(found - pairs.begin())] = true;
    name.replace(0, found->first.size(), found->second);
  }
  if (const auto idle = std::ranges::find(applied, false); idle != applied.end()) {
    const auto& text = mappings[static_cast<std::size_t>(idle - applied.begin())];
    return fail(ErrorKind::not_found, fmt::format("--map {}: no tensor of A has a name that begins so", text));
  }
  return check_names(state);
}

}  // namespace bitsnap::cli
