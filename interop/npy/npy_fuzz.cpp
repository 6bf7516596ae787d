// Fuzz target: any bytes as a .npy file are refused, or are one array that ends where the bytes end. A view lies within
// its array.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "base/bytes.hpp"
#include "interop/npy/npy.hpp"

namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto contents = bitsnap::interop::read_npy(
      bitsnap::interop::bytes_in_memory(std::as_bytes(std::span(data, size))), bitsnap::DecodeLimits());
  if (!contents) return 0;
  require(contents->tensors.size() <= 1 && contents->views.size() <= contents->tensors.size());
  for (const bitsnap::interop::FoundTensor& found : contents->tensors) {
    require(found.info.size_bytes > 0 && found.offset < size && found.offset + found.info.size_bytes == size);
    require(bitsnap::dtype_from_name(found.info.dtype_name) == found.info.dtype);
    if (found.info.dtype != bitsnap::DType::opaque) {
      require(bitsnap::shape_size_bytes(found.info.dtype, found.info.shape).value() == found.info.size_bytes);
    }
  }
  for (const bitsnap::interop::TensorView& view : contents->views) {
    require(view.offset == contents->tensors[0].offset && view.stride.size() == view.shape.size());
    std::uint64_t last = 0;
    for (std::size_t i = 0; i < view.shape.size(); ++i) last += (view.shape[i] - 1) * view.stride[i];
    require(view.offset + (last + 1) * view.element_bytes == size);
  }
  return 0;
}
