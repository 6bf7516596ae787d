// Sizes of shapes, checked for overflow.
#include <limits>
#include <string>

#include <bitsnap/tensor.hpp>

#include "base/checked.hpp"
#include "base/try.hpp"

namespace bitsnap {

Result<std::uint64_t> shape_size_bytes(DType dtype, const std::vector<std::uint64_t>& shape) {
  // One zero makes the tensor empty, whatever the other extents are.
  for (const std::uint64_t extent : shape) {
    if (extent == 0) return std::uint64_t{0};
  }
  std::uint64_t size = element_size(dtype);
  for (const std::uint64_t extent : shape) {
    const auto product = checked_multiply(size, extent);
    if (!product || *product > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
      std::string text = "[";
      for (const std::uint64_t each : shape) text.append(text.size() > 1 ? ", " : "").append(std::to_string(each));
      return fail(ErrorKind::invalid_argument,
                  "shape " + text + "] of " + std::string(dtype_name(dtype)) + " has more than 2^63 - 1 bytes");
    }
    size = *product;
  }
  return size;
}

}  // namespace bitsnap
