// Fuzz target: any bytes as a file of torch.save are refused, or their tensors are sorted, disjoint and in the file.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "base/bytes.hpp"
#include "interop/torch_legacy/torch_legacy.hpp"
#include "interop/torch_tensors/listing_testing.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view file(reinterpret_cast<const char*>(data), size);
  const auto contents =
      bitsnap::interop::read_torch_legacy(bitsnap::interop::bytes_in_memory(bitsnap::as_byte_span(file)), {});
  if (contents && !bitsnap::interop::find_misplaced(*contents, size).empty()) std::abort();
  return 0;
}
