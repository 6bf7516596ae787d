// Reads a pickle without executing it: opcodes become a graph of values, in which classes and calls are only named.
// Protocols 0 to 5. Pure functions.
#pragma once

#include <cstdint>
#include <deque>
#include <string_view>
#include <vector>

#include <bitsnap/error.hpp>
#include <bitsnap/limits.hpp>

namespace bitsnap::interop {

using NodeId = std::uint32_t;
inline constexpr NodeId kNoNode = UINT32_MAX;

enum class PickleKind : std::uint8_t {
  none,
  boolean,        // integer is 0 or 1
  integer,        // fits in 64 bits
  big_integer,    // text: little-endian two's complement, or decimal digits (protocols 0 and 1)
  real,           // text: 8 bytes, big-endian, or decimal digits (protocol 0)
  string,         // text: UTF-8, or with escapes as stored (protocol 0)
  bytes,          // text
  list,           // items
  tuple,          // items
  set,            // items
  dict,           // items: key, value, key, value
  global,         // items: module and name, two strings
  call,           // callable and arguments; items: what was added to the object that the call made
  persistent_id,  // arguments: the id
  other,          // an extension or a buffer out of band; no reader of tensors needs their values
};

// One value of a pickle. Values refer to each other by number; the graph may have cycles and shared parts, so a walk
// must remember the values that it has visited.
struct PickleNode {
  PickleKind kind = PickleKind::none;
  bool has_pairs = false;      // of a call: items are keys and values, as in a dict
  NodeId callable = kNoNode;   // a global, or any other value
  NodeId arguments = kNoNode;  // a tuple, or any other value
  NodeId state = kNoNode;      // argument of BUILD, of any kind of value
  std::int64_t integer = 0;
  std::string_view text = {};  // in the text that was read, which must outlive the graph
  std::vector<NodeId> items = {};
};

struct PickleGraph {
  std::deque<PickleNode> nodes;  // which grows without a second copy
  NodeId root = 0;
  std::uint64_t bytes = 0;  // of the pickle, with STOP; another pickle may follow in the text

  [[nodiscard]] const PickleNode& at(NodeId id) const { return nodes[id]; }
  // The node, if it exists and has this kind; otherwise null.
  [[nodiscard]] const PickleNode* find(NodeId id, PickleKind kind) const {
    return id < nodes.size() && nodes[id].kind == kind ? &nodes[id] : nullptr;
  }
  // The value of a string key in a dict or in what was added to a call; kNoNode if there is none. Takes linear time.
  [[nodiscard]] NodeId lookup(NodeId dict, std::string_view key) const;
};

// Reads the pickle at the start of `text`. corrupt for an unknown opcode, for a stack that is empty or holds a value of
// another kind than the opcode needs, and for an undefined memo; truncated if the text ends before STOP;
// resource_exhausted if there are more than `limits.tree_nodes` values, or more than 65,536 and one for every four
// bytes of the text, times `limits.max_cost`. Time and memory are proportional to the text, except for memo numbers
// above the size of the text, which take a search each.
[[nodiscard]] Result<PickleGraph> read_pickle(std::string_view text, const DecodeLimits& limits);

}  // namespace bitsnap::interop
