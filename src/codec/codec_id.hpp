// The stable numbers of the codecs in chunk tables.
#pragma once

#include <cstdint>

namespace bitsnap::codec {

// On disk: never change or reuse.
enum class CodecId : std::uint16_t {
  raw = 0,
  constant = 1,
  same = 2,
  zstd = 3,
  byte_group = 4,
  float_split = 5,
  bitmask = 6,
  ordinal_delta = 7,
  factored_split = 8,
  rounded_from = 9,
  optimizer_step = 10,
  scaled_by = 11,
  clustered = 12,
  gradient_step = 13,
};

}  // namespace bitsnap::codec
