// Fuzz target: any text as a pickle is refused, or becomes a graph whose values refer to values of the graph.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "interop/pickle/pickle_reader.hpp"

namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using bitsnap::interop::kNoNode;
  using bitsnap::interop::NodeId;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto graph = bitsnap::interop::read_pickle(text, {});
  if (!graph) return 0;
  const std::size_t count = graph->nodes.size();
  require(graph->root < count && graph->bytes <= size && text[graph->bytes - 1] == '.');
  const auto exists = [&](NodeId id) { return id == kNoNode || id < count; };
  for (const bitsnap::interop::PickleNode& node : graph->nodes) {
    require(exists(node.callable) && exists(node.arguments) && exists(node.state));
    for (const NodeId item : node.items) require(item < count);
    require(node.text.empty() || (node.text.data() >= text.data() && node.text.size() <= size &&
                                  node.text.data() + node.text.size() <= text.data() + size));
    if (node.kind == bitsnap::interop::PickleKind::dict) require(node.items.size() % 2 == 0);
  }
  return 0;
}
