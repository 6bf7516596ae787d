// Fuzz target of the block coder: any bytes decode to an error or a full plane, identically on every CPU level, and any
// plane round-trips. The first three bytes select the operation and the plane's length.
#include <cstdlib>
#include <vector>

#include <bitsnap/cpu.hpp>

#include "entropy/byte_block_encode.hpp"

namespace {

using bitsnap::ConstByteSpan;
using bitsnap::CpuLevel;
using bitsnap::Scratch;

void require(bool condition) {
  if (!condition) std::abort();
}

void decode_any(ConstByteSpan payload, std::size_t plane_bytes, Scratch& scratch) {
  std::vector<std::byte> expected;
  bool expected_sound = false;
  for (const CpuLevel level : bitsnap::kCpuLevels) {
    if (!bitsnap::force_cpu_level(level)) continue;
    std::vector<std::byte> plane(plane_bytes);
    const auto used = bitsnap::entropy::decode_plane(payload, plane, scratch);
    require(!used || *used <= payload.size());
    if (level == CpuLevel::scalar) {
      expected_sound = used.has_value();
      expected = plane;
    }
    require(used.has_value() == expected_sound);
    require(!used || plane == expected);
  }
}

void round_trip(ConstByteSpan seed, std::size_t plane_bytes, Scratch& scratch) {
  std::vector<std::byte> plane(plane_bytes);
  for (std::size_t i = 0; i < plane_bytes && !seed.empty(); ++i) plane[i] = seed[i % seed.size()];
  std::vector<std::byte> expected;
  for (const CpuLevel level : bitsnap::kCpuLevels) {
    if (!bitsnap::force_cpu_level(level)) continue;
    std::vector<std::byte> encoded(bitsnap::entropy::max_encoded_plane_size(plane_bytes));
    const auto size = bitsnap::entropy::encode_plane(plane, encoded, scratch);
    require(size.has_value());
    encoded.resize(*size);
    encoded.shrink_to_fit();
    if (level == CpuLevel::scalar) expected = encoded;
    require(encoded == expected);
    std::vector<std::byte> decoded(plane_bytes);
    const auto used = bitsnap::entropy::decode_plane(encoded, decoded, scratch);
    require(used.has_value() && *used == encoded.size());
    require(decoded == plane);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static Scratch scratch;
  if (size < 3) return 0;
  const std::size_t plane_bytes = data[1] | std::size_t{data[2]} << 8U | std::size_t{data[0] & 2U} << 15U;
  const ConstByteSpan rest = std::as_bytes(std::span(data + 3, size - 3));
  if ((data[0] & 1U) == 0) {
    decode_any(rest, plane_bytes, scratch);
  } else {
    round_trip(rest, plane_bytes, scratch);
  }
  return 0;
}
