// Names of tensors: the path of keys from the root of a pickle, joined with '.', unique in a container. One thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "interop/container/unique_names.hpp"
#include "interop/pickle/pickle_reader.hpp"

namespace bitsnap::interop {

// Longer or deeper names are replaced, so that a name never costs much.
inline constexpr std::size_t kMaxTensorNameBytes = 1024;
inline constexpr std::uint32_t kMaxTensorNameParts = 64;

// One part of a name.
struct NamePart {
  enum class Kind : std::uint8_t { nothing, key, index, text };
  Kind kind = Kind::nothing;
  std::uint32_t value = 0;     // the node of a key, or an index
  std::string_view text = {};  // a constant
};

// The parts of the names of containers, as a tree. Names are made only when they are needed.
class NameTree {
 public:
  using Place = std::uint32_t;
  static constexpr Place kRoot = 0;

  explicit NameTree(const PickleGraph& graph) : graph_(graph), places_(1) {}

  [[nodiscard]] std::size_t size() const noexcept { return places_.size(); }
  [[nodiscard]] Place add(Place parent, NamePart part);
  // nullopt if the name would exceed the limits. The name of the root is empty.
  [[nodiscard]] std::optional<std::string> name(Place place) const;
  // The part for a key of a dict: its text or number, or otherwise its position.
  [[nodiscard]] NamePart part_of(NodeId key, std::size_t position) const;

 private:
  struct Entry {
    Place parent = kRoot;
    std::uint32_t depth = 0;
    NamePart part;
  };
  const PickleGraph& graph_;
  std::vector<Entry> places_;
};

}  // namespace bitsnap::interop
