// The codecs themselves, on memory: for measurements and for programs that bring their own container.
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
  std::uint16_t id = 0;
  std::string_view name;
  std::string_view summary;  // one line for people
};

// All codecs, in the order of their ids.
[[nodiscard]] std::vector<CodecInfo> list_codecs();

// Whether the codec takes chunks of this dtype, with or without a base.
[[nodiscard]] bool codec_accepts(std::string_view codec, DType dtype, bool with_base) noexcept;

// Largest size that encode_chunk can need for so many elements (at most kChunkElements).
[[nodiscard]] Result<std::size_t> max_encoded_size(std::string_view codec, DType dtype, std::size_t elements);

// Encodes one chunk; `base` is empty or as long as `data`. Returns the number of bytes written to `out`, which has
// max_encoded_size() bytes; nullopt if the codec cannot express this chunk (`constant` stores equal elements only).
[[nodiscard]] Result<std::optional<std::size_t>> encode_chunk(std::string_view codec, DType dtype,
                                                              std::span<const std::byte> data,
                                                              std::span<const std::byte> base,
                                                              std::span<std::byte> out);

// Decodes one chunk into `out`, whose size is the chunk's. corrupt or truncated for a payload that is not one.
[[nodiscard]] Result<void> decode_chunk(std::string_view codec, DType dtype, std::span<const std::byte> payload,
                                        std::span<const std::byte> base, std::span<std::byte> out);

}  // namespace bitsnap
