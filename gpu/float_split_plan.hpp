// The part of float_split (src/codec/float_split/spec.md) that stays on the CPU when a GPU codes a chunk: which
// elements to sample, whether lanes suit them, and the tables; and the fields of a payload. The decisions are those of
// the codec, so that the payloads are equal byte for byte.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include <bitsnap/dtype.hpp>

#include "base/bytes.hpp"
#include "gpu/chunk_scan.hpp"
#include "gpu/lane_jobs.hpp"

namespace bitsnap::gpu {

// Runs of elements that a plan needs, and where it finds them in what gather_runs() copies.
class SampleRuns {
 public:
  // For chunks of `elements` elements. Precondition: can_be_coded().
  explicit SampleRuns(std::size_t elements);

  static constexpr std::uint32_t kRunElements = 16;
  [[nodiscard]] const std::vector<std::uint32_t>& starts() const noexcept { return starts_; }
  [[nodiscard]] std::size_t elements() const noexcept { return starts_.size() * kRunElements; }

  // Elements of the gathered ones: first and number.
  struct Part {
    std::size_t first = 0;
    std::size_t count = 0;
  };
  [[nodiscard]] Part glance() const noexcept { return parts_[0]; }
  [[nodiscard]] Part look() const noexcept { return parts_[1]; }
  [[nodiscard]] Part all() const noexcept { return parts_[2]; }
  [[nodiscard]] Part block(std::size_t number) const noexcept { return parts_[3 + number]; }

 private:
  std::vector<std::uint32_t> starts_;
  std::vector<Part> parts_;
};

// Whether a GPU may code such chunks: bf16 or f32 of at least 128 KiB, whose last block can be sampled in whole runs.
[[nodiscard]] bool can_be_coded(DType dtype, std::size_t elements) noexcept;

struct EncodePlan {
  std::uint8_t form = 0;  // the first byte of the payload
  bool is_rotated = false;
  std::vector<BlockEncodeTable> blocks;
  std::vector<std::uint8_t> table_bytes;
};

// From the gathered elements and the bits of each block; nullopt if the codec writes another form, for which the CPU
// has to code the chunk.
[[nodiscard]] std::optional<EncodePlan> plan_encoding(DType dtype, std::size_t elements, const SampleRuns& runs,
                                                      ConstByteSpan gathered, std::span<const BlockBits> bits);

struct DecodePlan {
  bool is_rotated = false;
  std::vector<entropy::RansDecodeTable> blocks;
  // Where the fields begin in the payload, of which the device has a copy.
  std::size_t rest = 0;
  std::size_t streams[kGroups] = {};
  std::size_t stream_sizes[kGroups] = {};
  std::size_t escapes = 0;
  std::size_t escapes_size = 0;
  std::size_t states = 0;
};

// Reads the fields of a payload. nullopt: it has another form. Errors: truncated, corrupt.
[[nodiscard]] Result<std::optional<DecodePlan>> plan_decoding(DType dtype, std::size_t elements, ConstByteSpan payload);

}  // namespace bitsnap::gpu
