// Fuzz target: any text as the metadata of a checkpoint is refused, or its items make a .distcp file refused, or leave
// the tensors of that file sorted, disjoint and in the file. The file is all of the input, behind the metadata or not.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "base/bytes.hpp"
#include "interop/container/contents_testing.hpp"
#include "interop/container/file_bytes_testing.hpp"
#include "interop/dcp/dcp_metadata.hpp"
#include "interop/dcp/distcp.hpp"

namespace {

void check_items(std::string_view file, const std::vector<bitsnap::interop::DcpItem>& items) {
  const auto contents =
      bitsnap::interop::read_distcp(bitsnap::interop::bytes_in_memory(bitsnap::as_byte_span(file)), items, {});
  if (contents && !bitsnap::interop::find_misplaced(*contents, file.size()).empty()) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  if (const auto items = bitsnap::interop::read_dcp_metadata(input, {})) check_items(input, *items);
  static_cast<void>(bitsnap::interop::read_dcp_paths(input, {}));
  const auto bytes = bitsnap::interop::bytes_in_memory(bitsnap::as_byte_span(input));
  if (const auto items = bitsnap::interop::find_dcp_items(bytes, {})) check_items(input, *items);
  return 0;
}
