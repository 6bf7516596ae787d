// The header of a safetensors file: JSON that lists the tensors and their places in the data. Pure functions.
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

// The format's limit.
inline constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;
// The size of the length field before the header.
inline constexpr std::uint64_t kLengthBytes = 8;

struct SafetensorsHeader {
  std::vector<TensorInfo> tensors;  // in the order of their data, without holes and overlaps
  std::vector<std::pair<std::string, std::string>> metadata;
};

// Fails with corrupt, naming the tensor, or with truncated, unless the text is a header for `data_bytes` bytes of data.
[[nodiscard]] Result<SafetensorsHeader> parse_safetensors_header(std::string_view json, std::uint64_t data_bytes,
                                                                 const DecodeLimits& limits);

// A header for tensors whose data is in their order, padded with spaces to a multiple of eight bytes.
[[nodiscard]] Result<std::string> make_safetensors_header(const SafetensorsHeader& header);

}  // namespace bitsnap::interop
