// Fuzz target: any text as a safetensors header is refused, or describes tensors that cover the data exactly and makes
// a header that round-trips.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "interop/safetensors/safetensors_header.hpp"

namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  // The first two bytes are the size of the data that the header is to describe.
  if (size < 2) return 0;
  const std::uint64_t data_bytes = data[0] | std::uint64_t{data[1]} << 8U;
  const std::string_view json(reinterpret_cast<const char*>(data) + 2, size - 2);
  const auto header = bitsnap::interop::parse_safetensors_header(json, data_bytes, {});
  if (!header) return 0;

  std::uint64_t end = 0;
  for (const bitsnap::TensorInfo& tensor : header->tensors) end += tensor.size_bytes;
  require(end == data_bytes);

  const auto made = bitsnap::interop::make_safetensors_header(*header);
  require(made.has_value());
  const auto again = bitsnap::interop::parse_safetensors_header(*made, data_bytes, {});
  require(again.has_value());
  require(again->metadata == header->metadata && again->tensors.size() == header->tensors.size());
  for (std::size_t i = 0; i < header->tensors.size(); ++i) {
    const bitsnap::TensorInfo& before = header->tensors[i];
    const bitsnap::TensorInfo& after = again->tensors[i];
    require(before.name == after.name && before.dtype_name == after.dtype_name && before.shape == after.shape &&
            before.size_bytes == after.size_bytes);
  }
  return 0;
}
