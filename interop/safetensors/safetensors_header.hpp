// The header of a safetensors file: JSON that lists the tensors and their places in the data. Pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <bitsnap/error.hpp>
#include <bitsnap/limits.hpp>
#include <bitsnap/tensor.hpp>
#include <bitsnap/value.hpp>

namespace bitsnap::interop {

// The name of the format.
inline constexpr std::string_view kSafetensors = "safetensors";
// The format's limit.
inline constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;
// The size of the length field before the header.
inline constexpr std::uint64_t kLengthBytes = 8;

// From the first bytes of a file, and its size.
[[nodiscard]] bool looks_like_safetensors(std::string_view start, std::uint64_t file_bytes) noexcept;

struct SafetensorsHeader {
  std::vector<TensorInfo> tensors;  // in the order of their data, without holes and overlaps
  std::vector<std::pair<std::string, std::string>> metadata;
};

// Fails with corrupt, naming the tensor, or with truncated, unless the text is a header for `data_bytes` bytes of data.
[[nodiscard]] Result<SafetensorsHeader> parse_safetensors_header(std::string_view json, std::uint64_t data_bytes,
                                                                 const DecodeLimits& limits);

// Where the metadata holds the tree of values of a state, as JSON.
inline constexpr std::string_view kTreeKey = "bitsnap.tree";
// The tree in the metadata, whose tensors are those of the header, is taken out; nullopt: there is none.
[[nodiscard]] Result<std::optional<Value>> take_tree(SafetensorsHeader& header, const DecodeLimits& limits);
// Puts the tree, if there is one, in the metadata.
[[nodiscard]] Result<void> put_tree(SafetensorsHeader& header, const std::optional<Value>& tree);

// A header for tensors whose data is in their order, padded with spaces to a multiple of eight bytes.
[[nodiscard]] Result<std::string> make_safetensors_header(const SafetensorsHeader& header);

// The length and the text, with which a file begins. Returns their bytes.
[[nodiscard]] Result<std::uint64_t> write_safetensors_header(
    std::string_view text, const std::function<Result<void>(std::span<const std::byte>)>& sink);

}  // namespace bitsnap::interop
