// The codecs, applied to chunks in memory: for measurements, and for programs with a container format of their own.
//
// A chunk is up to kChunkElements (2^18) elements of one dtype, little-endian. The functions are thread-safe. An
// unknown codec name is invalid_argument.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include <bitsnap/dtype.hpp>
#include <bitsnap/error.hpp>

namespace bitsnap {

struct CodecInfo {
  std::uint16_t id = 0;  // stored in files; never changes
  std::string_view name;
  std::string_view summary;  // one line for people
};

// All codecs, ordered by id.
[[nodiscard]] std::vector<CodecInfo> list_codecs();

// Whether the codec can encode chunks of this dtype, with or without a base.
[[nodiscard]] bool codec_accepts(std::string_view codec, DType dtype, bool with_base) noexcept;

// The largest number of bytes that encode_chunk() writes for `elements` elements (at most kChunkElements).
[[nodiscard]] Result<std::size_t> max_encoded_size(std::string_view codec, DType dtype, std::size_t elements);

// Encodes one chunk. `base` is empty or as long as `data`; `out` has at least max_encoded_size() bytes. Returns the
// number of bytes written to `out`, or nullopt if the codec cannot express this chunk: `constant` encodes only chunks
// whose elements are all equal.
[[nodiscard]] Result<std::optional<std::size_t>> encode_chunk(std::string_view codec, DType dtype,
                                                              std::span<const std::byte> data,
                                                              std::span<const std::byte> base,
                                                              std::span<std::byte> out);

// Decodes one chunk into `out`, which has the size of the decoded chunk. `base` is the one given to encode_chunk().
// corrupt or truncated if the codec cannot have written `payload`.
[[nodiscard]] Result<void> decode_chunk(std::string_view codec, DType dtype, std::span<const std::byte> payload,
                                        std::span<const std::byte> base, std::span<std::byte> out);

}  // namespace bitsnap
