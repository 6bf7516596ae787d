// The header of a safetensors file: JSON that says which bytes of the data belong to which tensor.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <bitsnap/error.hpp>
#include <bitsnap/limits.hpp>
#include <bitsnap/tensor.hpp>

namespace bitsnap::interop {

// What the format itself allows for a header.
inline constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;
// The length field before the header.
inline constexpr std::uint64_t kLengthBytes = 8;

struct SafetensorsHeader {
  std::vector<TensorInfo> tensors;  // in the order of their data, which they cover without holes and overlaps
  std::vector<std::pair<std::string, std::string>> metadata;
};

// corrupt, naming the tensor, unless the text is a header for exactly `data_bytes` bytes of data.
[[nodiscard]] Result<SafetensorsHeader> parse_safetensors_header(std::string_view json, std::uint64_t data_bytes,
                                                                 const DecodeLimits& limits);

// A header for tensors whose data stands in their order; padded with spaces to a multiple of eight bytes.
[[nodiscard]] Result<std::string> make_safetensors_header(const SafetensorsHeader& header);

}  // namespace bitsnap::interop
