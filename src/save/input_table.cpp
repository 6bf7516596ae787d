// Numbers bases and inputs, and checks that there is room.
#include "save/input_table.hpp"

#include <algorithm>

#include "container/layout.hpp"
#include "os/file_system.hpp"

namespace bitsnap::save {

InputTable::InputTable(container::Encoding& encoding, bool with_names) : encoding_(encoding), with_names_(with_names) {
  for (const BaseReference& base : encoding.bases) {
    numbers_.emplace(base.id, static_cast<std::uint32_t>(numbers_.size()));
    references_.push_back({base.id, {}});
  }
}

bool InputTable::keep_place(const Base& base) {
  if (const auto number = numbers_.find(base.id()); number != numbers_.end()) {
    const std::string& name = references_[number->second].name;
    return name.empty() || name == base.name();
  }
  if (const auto kept = kept_.find(base.id()); kept != kept_.end()) return kept->second == base.name();
  if (numbers_.size() + kept_.size() >= DecodeLimits().bases) return false;
  kept_.emplace(base.id(), base.name());
  return true;
}

std::optional<std::uint8_t> InputTable::enter(std::size_t stream, const BaseStream& own, const Base& base,
                                              std::size_t base_stream, std::uint64_t element) {
  auto& inputs = encoding_.streams[stream].inputs;
  if (const auto number = numbers_.find(base.id()); number != numbers_.end()) {
    Reference& reference = references_[number->second];
    if (!reference.name.empty() && reference.name != base.name()) return std::nullopt;
    // Copied chunks refer to it: which file of this id they mean, and how deep its chunks are, is not known.
    if (reference.name.empty()) reference.standalone = false;
    const auto known = std::ranges::find(inputs, container::StreamInput{number->second, base_stream, element});
    if (known != inputs.end()) return static_cast<std::uint8_t>(known - inputs.begin());
  }
  const bool is_own_base = base.id() == own.base->id() && base_stream == own.stream && element == 0;
  if (inputs.size() + (is_own_base ? 0 : 1) >= container::kNoInput) return std::nullopt;
  const auto kept = kept_.find(base.id());
  if (kept != kept_.end() && kept->second != base.name()) return std::nullopt;
  const bool has_place = numbers_.contains(base.id()) || kept != kept_.end();
  if (!has_place && numbers_.size() + kept_.size() >= DecodeLimits().bases) return std::nullopt;
  inputs.push_back({base_number(base), base_stream, element});
  return static_cast<std::uint8_t>(inputs.size() - 1);
}

std::optional<std::uint8_t> InputTable::enter_peer(std::size_t stream, const PeerStream& peer) {
  auto& inputs = encoding_.streams[stream].inputs;
  const container::StreamInput input{std::nullopt, peer.stream, peer.element};
  const auto known = std::ranges::find(inputs, input);
  if (known != inputs.end()) return static_cast<std::uint8_t>(known - inputs.begin());
  if (inputs.size() + 1 >= container::kNoInput) return std::nullopt;  // keeps the place of the own base
  inputs.push_back(input);
  return static_cast<std::uint8_t>(inputs.size() - 1);
}

void InputTable::note_reference(std::size_t stream, std::uint8_t input, std::uint32_t depth) {
  if (depth > 0) references_[*encoding_.streams[stream].inputs[input].base].standalone = false;
}

std::uint32_t InputTable::base_number(const Base& base) {
  const auto [position, is_new] = numbers_.emplace(base.id(), static_cast<std::uint32_t>(encoding_.bases.size()));
  if (is_new) {
    encoding_.bases.push_back({base.id(), with_names_ ? std::string(os::file_name(base.name())) : ""});
    references_.push_back({base.id(), base.name()});
    kept_.erase(base.id());
  }
  return position->second;
}

}  // namespace bitsnap::save
