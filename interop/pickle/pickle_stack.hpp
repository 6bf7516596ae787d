// The stack, the marks and the memo of the pickle machine, and the nodes that it makes. One owner, one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <bitsnap/error.hpp>
#include <bitsnap/limits.hpp>

#include "interop/pickle/pickle_reader.hpp"

namespace bitsnap::interop {

class PickleStack {
 public:
  // The memo uses an array for numbers below `text_bytes`, so that its size is bounded by the text.
  PickleStack(std::uint64_t text_bytes, const DecodeLimits& limits);

  [[nodiscard]] PickleGraph& graph() noexcept { return graph_; }
  [[nodiscard]] PickleNode& node(NodeId id) { return graph_.nodes[id]; }

  // resource_exhausted at the limit. The result is not on the stack.
  [[nodiscard]] Result<NodeId> make(PickleNode node);
  void push(NodeId id) { stack_.push_back(id); }

  // corrupt if there is no value above the last mark.
  [[nodiscard]] Result<NodeId> pop();
  [[nodiscard]] Result<NodeId> top() const;

  void push_mark() { marks_.push_back(stack_.size()); }
  // The values above the last mark, in the order in which they were pushed, without the mark; corrupt if there is none.
  // The span is valid until the next change of the stack; drop_to_mark removes the values.
  [[nodiscard]] Result<std::span<const NodeId>> above_mark() const;
  void drop_to_mark();
  // POP: the last value, or the mark if there is no value above it.
  [[nodiscard]] Result<void> discard();

  void put(std::uint64_t number, NodeId id);
  [[nodiscard]] Result<NodeId> get(std::uint64_t number) const;
  [[nodiscard]] std::uint64_t memo_size() const noexcept { return memo_size_; }

 private:
  [[nodiscard]] std::size_t floor() const noexcept { return marks_.empty() ? 0 : marks_.back(); }

  PickleGraph graph_;
  std::vector<NodeId> stack_;
  std::vector<std::size_t> marks_;
  std::vector<NodeId> memo_;                     // numbers below text_bytes_
  std::map<std::uint64_t, NodeId> sparse_memo_;  // the others: a tree, because a hash map can be made to degenerate
  std::uint64_t memo_size_ = 0;
  std::uint64_t text_bytes_;
  std::uint64_t most_nodes_;
};

}  // namespace bitsnap::interop
