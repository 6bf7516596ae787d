// Reads a pickle without executing it: opcodes become a graph of values, in which classes and calls are only named.
// Protocols 0 to 5. Pure functions.
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include <bitsnap/error.hpp>
#include <bitsnap/limits.hpp>

namespace bitsnap::interop {

using NodeId = std::uint32_t;

// One value of a pickle. Values refer to each other by number; the graph may have cycles and shared parts, so that a
// walk must remember where it was.
struct PickleNode {
  enum class Kind : std::uint8_t {
    none,
    boolean,        // integer is 0 or 1
    integer,        // fits in 64 bits
    big_integer,    // text: the bytes or digits as stored
    real,           // number
    string,         // text, UTF-8 or as stored
    bytes,          // text
    list,           // items
    tuple,          // items
    set,            // items
    dict,           // items: key, value, key, value
    global,         // text: "module name", one space between
    call,           // items: the callable, then one tuple of arguments (REDUCE, NEWOBJ), and a third with keywords
    persistent_id,  // items: the id
    other,          // what no reader of tensors needs: a buffer out of band, an extension
  };
  Kind kind = Kind::none;
  std::int64_t integer = 0;
  double number = 0;
  std::string_view text;  // in the text that was read, which must outlive the graph
  std::vector<NodeId> items;
  NodeId state = kNoNode;  // argument of BUILD; of a list or dict that a call made, its items were added to `items`
  static constexpr NodeId kNoNode = UINT32_MAX;
};

struct PickleGraph {
  std::vector<PickleNode> nodes;
  NodeId root = 0;
  std::uint64_t bytes = 0;  // that the pickle took of the text: several may follow each other
};

// Reads the pickle at the start of `text`. corrupt for an unknown opcode, for a stack that is empty or holds another
// kind than the opcode needs, and for an undefined memo; truncated if the text ends before STOP; resource_exhausted if
// there are more than `limits.tree_nodes` values. Takes time and memory in proportion to the text.
[[nodiscard]] Result<PickleGraph> read_pickle(std::string_view text, const DecodeLimits& limits);

}  // namespace bitsnap::interop
