// Fuzz target: any bytes as a typed tree, a content and an encoding give an error, or round-trip.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include <bitsnap/value.hpp>

#include "base/cost_testing.hpp"
#include "container/directory.hpp"
#include "container/value_reader.hpp"

namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace bitsnap;
  const CostCheck cost(size, {1 << 20, 1000, 1, 1e-4});
  const std::string_view json(reinterpret_cast<const char*>(data), size);
  DecodeLimits limits;
  limits.tree_nodes = 10000;
  if (const auto value = parse_value(json, 3, limits)) {
    const auto written = serialize_value(*value, limits);
    require(written.has_value());
    const auto again = parse_value(*written, 3, limits);
    require(again.has_value() && *serialize_value(*again, limits) == *written);
  }
  if (const auto content = container::parse_content(json, limits)) {
    const auto written = container::serialize_content(*content);
    require(written.has_value());
    const auto again = container::parse_content(*written, limits);
    require(again.has_value() && *container::serialize_content(*again) == *written);
    (void)container::derive_streams(*content);
    if (content->tree) (void)container::parse_tree(*content->tree, content->tensors, limits);
  }
  for (const std::size_t streams : {0U, 1U, 2U}) {
    if (const auto encoding = container::parse_encoding(json, streams, limits)) {
      const std::string written = container::serialize_encoding(*encoding);
      const auto again = container::parse_encoding(written, streams, limits);
      require(again.has_value() && container::serialize_encoding(*again) == written);
    }
  }
  return 0;
}
