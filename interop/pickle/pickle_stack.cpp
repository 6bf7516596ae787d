#include "interop/pickle/pickle_stack.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/try.hpp"
#include "interop/container/scaled_limit.hpp"

namespace bitsnap::interop {

namespace {

// Python's picklers write at least four bytes for nearly each value that is not shared; a hostile pickle may use one,
// and a value takes 64 bytes of memory.
constexpr std::uint64_t kFreePickleValues = 65'536;
constexpr std::uint64_t kTextBytesPerValue = 4;

}  // namespace

NodeId PickleGraph::lookup(NodeId dict, std::string_view key) const {
  if (dict >= nodes.size()) return kNoNode;
  const PickleNode& node = nodes[dict];
  if (node.kind != PickleKind::dict && !node.has_pairs) return kNoNode;
  // The last one wins, as in Python.
  for (std::size_t i = node.items.size() / 2; i-- > 0;) {
    const PickleNode& candidate = nodes[node.items[2 * i]];
    if (candidate.kind == PickleKind::string && candidate.text == key) return node.items[2 * i + 1];
  }
  return kNoNode;
}

PickleStack::PickleStack(std::uint64_t text_bytes, const DecodeLimits& limits) : text_bytes_(text_bytes) {
  const std::uint64_t values = kFreePickleValues + text_bytes / kTextBytesPerValue;
  most_nodes_ = std::min(limits.tree_nodes, scale_limit(values, limits));
}

Result<NodeId> PickleStack::make(PickleNode node) {
  if (graph_.nodes.size() >= most_nodes_ || graph_.nodes.size() >= kNoNode) {
    return fail(ErrorKind::resource_exhausted, fmt::format("the pickle has more than {} values", most_nodes_));
  }
  graph_.nodes.push_back(std::move(node));
  return static_cast<NodeId>(graph_.nodes.size() - 1);
}

Result<NodeId> PickleStack::pop() {
  BITSNAP_ASSIGN(const NodeId id, top());
  stack_.pop_back();
  return id;
}

Result<NodeId> PickleStack::top() const {
  if (stack_.size() <= floor()) return fail(ErrorKind::corrupt, "the stack has no value");
  return stack_.back();
}

Result<std::span<const NodeId>> PickleStack::above_mark() const {
  if (marks_.empty()) return fail(ErrorKind::corrupt, "the stack has no mark");
  return std::span(stack_).subspan(marks_.back());
}

void PickleStack::drop_to_mark() {
  stack_.resize(marks_.back());
  marks_.pop_back();
}

Result<void> PickleStack::discard() {
  if (stack_.size() > floor()) {
    stack_.pop_back();
  } else if (!marks_.empty()) {
    marks_.pop_back();
  } else {
    return fail(ErrorKind::corrupt, "the stack has no value");
  }
  return {};
}

void PickleStack::put(std::uint64_t number, NodeId id) {
  if (number >= text_bytes_) {
    const bool added = sparse_memo_.insert_or_assign(number, id).second;
    memo_size_ += added ? 1 : 0;
    return;
  }
  const auto at = static_cast<std::size_t>(number);
  if (at >= memo_.size()) memo_.resize(std::max(at + 1, std::min<std::size_t>(2 * at, text_bytes_)), kNoNode);
  if (memo_[at] == kNoNode) ++memo_size_;
  memo_[at] = id;
}

Result<NodeId> PickleStack::get(std::uint64_t number) const {
  if (number < memo_.size()) {
    const NodeId id = memo_[static_cast<std::size_t>(number)];
    if (id != kNoNode) return id;
  } else if (const auto found = sparse_memo_.find(number); found != sparse_memo_.end()) {
    return found->second;
  }
  return fail(ErrorKind::corrupt, fmt::format("memo {} is not defined", number));
}

}  // namespace bitsnap::interop
