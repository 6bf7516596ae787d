// Takes the tensors of a model out of the state of a training, with the names that the model gives them.
#include <algorithm>
#include <array>
#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <bitsnap/convert.hpp>

#include "base/no_throw.hpp"
#include "base/quote_name.hpp"
#include "base/try.hpp"
#include "interop/convert/cast_tensor.hpp"

namespace bitsnap {
namespace {

using Names = std::set<std::string, std::less<>>;

// Where trainings keep the tensors of a model: Lightning; Transformers, Accelerate and bitsnap.torch; others.
constexpr std::array<std::string_view, 3> kSections = {"state_dict", "model", "module"};
// Modules that wrap others hold them by these names.
constexpr std::array<std::string_view, 3> kWrappers = {"_orig_mod.", "_fsdp_wrapped_module.",
                                                       "_checkpoint_wrapped_module."};
// A tensor of the state with the name that it may have in the model.
struct Candidate {
  std::size_t tensor = 0;
  std::string name;
};

std::string without_wrappers(std::string name) {
  for (const std::string_view wrapper : kWrappers) {
    for (std::size_t at = name.find(wrapper); at != std::string::npos; at = name.find(wrapper, at)) {
      if (at > 0 && name[at - 1] != '.') {
        at += wrapper.size();
      } else {
        name.erase(at, wrapper.size());
      }
    }
  }
  return name;
}

void keep_below(std::vector<Candidate>& candidates, std::string_view prefix) {
  std::erase_if(candidates, [&](const Candidate& each) { return !each.name.starts_with(prefix); });
  for (Candidate& each : candidates) each.name.erase(0, prefix.size());
}

bool all_below(const std::vector<Candidate>& candidates, std::string_view prefix) {
  return !candidates.empty() &&
         std::ranges::all_of(candidates, [&](const Candidate& each) { return each.name.starts_with(prefix); });
}

// Whether the state is one dict of tensors, as far as its tree tells.
bool is_flat(const State& state) {
  const auto* dict = state.tree ? std::get_if<ValueDict>(&state.tree->get()) : nullptr;
  if (state.tree && dict == nullptr) return std::holds_alternative<ValueTyped>(state.tree->get());
  const auto is_section = [](const auto& entry) {
    const auto* const key = std::get_if<std::string>(&entry.first.get());
    const bool is_dict =
        std::holds_alternative<ValueDict>(entry.second.get()) || std::holds_alternative<ValueTyped>(entry.second.get());
    return key != nullptr && is_dict && std::ranges::find(kSections, *key) != kSections.end();
  };
  if (dict != nullptr) {
    if (std::ranges::any_of(dict->entries, is_section)) return false;
    return std::ranges::any_of(
        dict->entries, [](const auto& entry) { return std::holds_alternative<ValueTensor>(entry.second.get()); });
  }
  return std::ranges::none_of(state.tensors, [](const TensorSource& tensor) {
    return std::string_view(tensor.info.name).starts_with("optimizer");
  });
}

Result<void> find_section(const State& state, std::vector<Candidate>& candidates) {
  if (!is_flat(state)) {
    const auto* const section = std::ranges::find_if(kSections, [&](std::string_view name) {
      return std::ranges::any_of(
          candidates, [&](const Candidate& each) { return each.name.starts_with(fmt::format("{}.", name)); });
    });
    if (section == kSections.end()) {
      return fail(ErrorKind::not_found, "the state has no tensors of a model under 'model', 'state_dict' or 'module'");
    }
    keep_below(candidates, fmt::format("{}.", *section));
    // The model is one attribute of a LightningModule.
    const std::string first = candidates.front().name.substr(0, candidates.front().name.find('.') + 1);
    if (*section == "state_dict" && !first.empty() && all_below(candidates, first)) keep_below(candidates, first);
  }
  while (all_below(candidates, "module.")) keep_below(candidates, "module.");
  return {};
}

// By the names of the model: the prefix with which the state has the most of them.
Result<void> find_prefix(const Names& names, std::vector<Candidate>& candidates) {
  Names held;
  for (const Candidate& each : candidates) held.insert(each.name);
  std::map<std::string, std::size_t> counts;
  for (const Candidate& each : candidates) {
    for (std::size_t at = 0;; ++at) {
      if (names.contains(std::string_view(each.name).substr(at))) ++counts[each.name.substr(0, at)];
      at = each.name.find('.', at);
      if (at == std::string::npos) break;
    }
  }
  if (counts.empty()) {
    return fail(
        ErrorKind::not_found,
        fmt::format("the state has none of the {} tensors of the model, such as {}; it has tensors such as {}",
                    names.size(), quote_name(*names.begin()), held.empty() ? "none" : quote_name(*held.begin())));
  }
  const std::size_t most = std::ranges::max_element(counts, {}, [](const auto& count) { return count.second; })->second;
  std::vector<std::string> best;
  for (const auto& [prefix, count] : counts) {
    if (count == most) best.push_back(prefix);
  }
  const std::vector<std::string> prefixes = best;
  // Of several copies of a model, that which trainings name as such.
  const auto in_section = [](const std::string& prefix) {
    return std::ranges::any_of(kSections, [&](std::string_view name) { return prefix.starts_with(name); });
  };
  if (best.size() > 1) std::erase_if(best, [&](const std::string& prefix) { return !in_section(prefix); });
  if (best.size() != 1) {
    return fail(ErrorKind::invalid_argument,
                fmt::format("the state has the model several times, with the prefixes {} and {}",
                            quote_name(prefixes.front()), quote_name(prefixes.back())));
  }
  keep_below(candidates, best.front());
  return {};
}

Result<bool> have_same_bytes(const TensorSource& a, const TensorSource& b) {
  if (a.info.dtype_name != b.info.dtype_name || a.info.shape != b.info.shape) return false;
  State one;
  State other;
  one.tensors.push_back(a);
  other.tensors.push_back(b);
  for (State* state : {&one, &other}) {
    state->tensors.front().info.name = "tensor";
    state->tensors.front().info.alias_of.reset();
  }
  BITSNAP_ASSIGN(const auto differences, compare(one, other));
  return differences.front().kind == TensorDifference::Kind::equal;
}

// Keeps the tensors that the model has. The others must be equal to one of these.
Result<void> keep_named(const State& state, const Names& names, std::vector<Candidate>& candidates) {
  std::vector<Candidate> kept;
  std::vector<Candidate> others;
  for (Candidate& each : candidates) (names.contains(each.name) ? kept : others).push_back(std::move(each));
  for (const Candidate& other : others) {
    bool is_tied = false;
    for (const Candidate& each : kept) {
      BITSNAP_ASSIGN(is_tied, have_same_bytes(state.tensors[other.tensor], state.tensors[each.tensor]));
      if (is_tied) break;
    }
    if (!is_tied) {
      return fail(ErrorKind::invalid_argument,
                  fmt::format("the state has the tensor {}, which the model has not", quote_name(other.name)));
    }
  }
  candidates = std::move(kept);
  return {};
}

// Of tensors that share memory, the first stays, as Transformers saves them.
void drop_tied(const State& state, std::vector<Candidate>& candidates) {
  std::set<std::size_t> held;
  std::erase_if(candidates, [&](const Candidate& each) {
    return !held.insert(state.tensors[each.tensor].info.alias_of.value_or(each.tensor)).second;
  });
}

}  // namespace

Result<State> model_state(State training, const ModelOptions& options) {
  return no_throw("taking a model out of a state", [&]() -> Result<State> {
    std::vector<Candidate> candidates;
    for (std::size_t i = 0; i < training.tensors.size(); ++i) {
      candidates.push_back({i, without_wrappers(training.tensors[i].info.name)});
    }
    const Names names(options.names.begin(), options.names.end());
    if (!names.empty()) {
      BITSNAP_TRY(find_prefix(names, candidates));
      BITSNAP_TRY(keep_named(training, names, candidates));
    } else if (options.all_tensors) {
      drop_tied(training, candidates);
    } else {
      BITSNAP_TRY(find_section(training, candidates));
      drop_tied(training, candidates);
    }
    State model;
    Names taken;
    for (Candidate& each : candidates) {
      TensorSource source = std::move(training.tensors[each.tensor]);
      if (!taken.insert(each.name).second) {
        return fail(ErrorKind::invalid_argument, fmt::format("two tensors are {}", quote_name(each.name)));
      }
      if (const auto shape = options.shapes.find(each.name);
          shape != options.shapes.end() && shape->second != source.info.shape) {
        return fail(ErrorKind::invalid_argument,
                    fmt::format("the tensor {} of the state is [{}], in the model it is [{}]", quote_name(each.name),
                                fmt::join(source.info.shape, ", "), fmt::join(shape->second, ", ")));
      }
      source.info.name = std::move(each.name);
      source.info.alias_of.reset();
      model.tensors.push_back(options.dtype ? interop::cast(std::move(source), *options.dtype) : std::move(source));
    }
    std::vector<std::string> missing;
    std::ranges::set_difference(names, taken, std::back_inserter(missing));
    if (!missing.empty()) {
      return fail(ErrorKind::invalid_argument,
                  fmt::format("the state lacks {} of the {} tensors of the model, such as {}", missing.size(),
                              names.size(), quote_name(missing.front())));
    }
    model.metadata = {{"format", "pt"}};  // which Transformers expects
    return model;
  });
}

}  // namespace bitsnap
