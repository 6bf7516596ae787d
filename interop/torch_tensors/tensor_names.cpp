#include "interop/torch_tensors/tensor_names.hpp"

#include <algorithm>
#include <array>

namespace bitsnap::interop {

NameTree::Place NameTree::add(Place parent, NamePart part) {
  places_.push_back({.parent = parent, .depth = places_[parent].depth + 1, .part = part});
  return static_cast<Place>(places_.size() - 1);
}

std::optional<std::string> NameTree::name(Place place) const {
  if (places_[place].depth > kMaxTensorNameParts) return std::nullopt;
  std::array<const Entry*, kMaxTensorNameParts> parts{};
  std::size_t count = 0;
  for (; place != kRoot; place = places_[place].parent) {
    if (places_[place].part.kind != NamePart::Kind::nothing) parts[count++] = &places_[place];
  }
  std::string name;
  for (std::size_t i = count; i-- > 0;) {
    const NamePart& part = parts[i]->part;
    if (i + 1 < count) name += '.';
    if (part.kind == NamePart::Kind::text) {
      name += part.text;
    } else if (part.kind == NamePart::Kind::index) {
      name += std::to_string(part.value);
    } else {
      const PickleNode& key = graph_.at(part.value);
      if (key.kind == PickleKind::integer) {
        name += std::to_string(key.integer);
      } else {
        if (key.text.size() > kMaxTensorNameBytes) return std::nullopt;
        name += escape_invalid_utf8(key.text);
      }
    }
    if (name.size() > kMaxTensorNameBytes) return std::nullopt;
  }
  return name;
}

NamePart NameTree::part_of(NodeId key, std::size_t position) const {
  const PickleNode& node = graph_.at(key);
  switch (node.kind) {
    case PickleKind::string:
    case PickleKind::bytes:
    case PickleKind::integer: return {.kind = NamePart::Kind::key, .value = key};
    case PickleKind::boolean: return {.kind = NamePart::Kind::text, .text = node.integer != 0 ? "True" : "False"};
    case PickleKind::none: return {.kind = NamePart::Kind::text, .text = "None"};
    default: return {.kind = NamePart::Kind::index, .value = static_cast<std::uint32_t>(position)};
  }
}

}  // namespace bitsnap::interop
