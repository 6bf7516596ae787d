// What storing a chunk costs in time, by recorded speeds: never measured when a state is saved, so that the same state,
// base and options give the same bytes on every machine and for any number of threads.
//
// Integers throughout, in picoseconds. Plain functions without state; any thread may call them.
#pragma once

#include <cstdint>

#include <bitsnap/tensor.hpp>

#include "codec/codec_id.hpp"
#include "codec/decoder.hpp"

namespace bitsnap::plan {

// Of coding one byte of a chunk on one thread, picoseconds.
struct CodingSpeed {
  std::uint32_t encode_ps = 0;
  std::uint32_t decode_ps = 0;
};

// What was recorded (recorded_speeds.cpp); of what was not, that of the slowest.
[[nodiscard]] CodingSpeed recorded_speed(codec::CodecId codec, DType dtype, bool on_base) noexcept;

// What a model of the time is made from.
struct CostModel {
  std::uint64_t store_bytes_per_second = 2'000'000'000;
  std::uint32_t encoders = 8;            // threads that code at once
  std::uint32_t restore_permille = 100;  // of how many in a thousand snapshots reading back is waited for
};

// The slowest and the fastest store: what is computed with them stays within 64 bits.
inline constexpr std::uint64_t kSlowestStore = 1'000'000;
inline constexpr std::uint64_t kFastestStore = 1'000'000'000'000;

// One chunk, coded in one way.
struct CodedChunk {
  std::uint64_t raw_bytes = 0;
  std::uint64_t payload_bytes = 0;
  CodingSpeed speed;
  std::uint32_t decodes = 1;  // chunks that reading decodes, one after another, the chunk among them
};

// Encoding / encoders + writing + restore share * (reading + decoding / encoders), each rounded down.
[[nodiscard]] std::uint64_t modelled_ps(const CostModel& model, const CodedChunk& chunk) noexcept;

}  // namespace bitsnap::plan
