// The time that storing a chunk costs, modelled from reference speeds. Nothing is measured while a state is saved, so
// that the same state, base and options give the same bytes on every machine and for any number of threads.
//
// All values are integers, times are picoseconds. Pure functions; any thread may call them.
#pragma once

#include <cstdint>

#include <bitsnap/tensor.hpp>

#include "codec/codec_id.hpp"
#include "codec/decoder.hpp"

namespace bitsnap::plan {

// Picoseconds to encode and to decode one byte of a chunk on one thread.
struct CodingSpeed {
  std::uint32_t encode_ps = 0;
  std::uint32_t decode_ps = 0;
};

// The measured speed (cost_model.cpp). A combination that was not measured counts as slow as the slowest.
[[nodiscard]] CodingSpeed reference_speed(codec::CodecId codec, DType dtype, bool on_base) noexcept;

// The defaults are those of Objective::balanced (docs/decisions/0011-objectives.md).
struct CostModel {
  std::uint64_t store_bytes_per_second = 2'000'000'000;
  std::uint32_t encoders = 8;            // threads that encode at the same time
  std::uint32_t restore_permille = 100;  // snapshots in a thousand that are read back
};

// Limits of store_bytes_per_second, which keep all products within 64 bits.
inline constexpr std::uint64_t kSlowestStore = 1'000'000;
inline constexpr std::uint64_t kFastestStore = 1'000'000'000'000;

// One chunk, coded by one codec.
struct CodedChunk {
  std::uint64_t raw_bytes = 0;
  std::uint64_t payload_bytes = 0;
  CodingSpeed speed;
  std::uint32_t decodes = 1;  // chunks that a reader decodes one after another, this chunk included
};

// encoding / encoders + writing + restore_permille / 1000 * (reading + decoding / encoders). Each term is rounded down.
[[nodiscard]] std::uint64_t modelled_ps(const CostModel& model, const CodedChunk& chunk) noexcept;

}  // namespace bitsnap::plan
