// Tensors in the caller's memory.
#include <utility>

#include <fmt/format.h>

#include <bitsnap/writer.hpp>

#include "base/no_throw.hpp"
#include "base/quote_name.hpp"
#include "base/try.hpp"

namespace bitsnap {

Result<TensorSource> TensorSource::of(std::string name, DType dtype, std::vector<std::uint64_t> shape,
                                      std::span<const std::byte> data) {
  return no_throw("tensor source", [&]() -> Result<TensorSource> {
    const auto place = [&] { return quote_tensor(name); };
    auto expected = shape_size_bytes(dtype, shape);
    if (!expected) return tl::unexpected(std::move(expected).error().within(place()));
    if (dtype != DType::opaque && *expected != data.size()) {
      return fail(ErrorKind::invalid_argument,
                  fmt::format("{}: {} of shape [{}] needs {} bytes, found {}", place(), dtype_name(dtype),
                              fmt::join(shape, ", "), *expected, data.size()));
    }
    TensorSource source;
    source.info.role = guess_role(name, dtype);
    source.info.name = std::move(name);
    source.info.dtype = dtype;
    source.info.dtype_name = dtype_name(dtype);
    source.info.shape = std::move(shape);
    source.info.size_bytes = data.size();
    source.data = data.data();
    return source;
  });
}

}  // namespace bitsnap
