// The formula, and the reference speeds of the codecs: measured once and compiled in, so that choices are the same on
// every machine.
//
// Measured on 22 November 2026 on one core of a shared AMD EPYC (Zen 5, AVX-512 with VBMI2) under KVM, g++ 12.2 -O3,
// from memory to memory, with the tensors of states 300 and 301 of the benchmark's corpus (beta95). In the same run
// memcpy took 48 ps a byte (21 GB/s) next to bf16 codecs and 56 ps next to f32 codecs. Commands:
//
//   role_elements.py state-000301.safetensors 301   (and the same for state 300)
//   codec_benchmark --corpus=301/weight.bfloat16.raw,BF16,300/weight.bfloat16.raw (and weight.float16,
//     master.float32, exp_avg_sq.float32) --benchmark_enable_random_interleaving=true --benchmark_repetitions=5
//
// Four codecs were measured separately:
// - optimizer_step, chunk by chunk, on master and exp_avg_sq of all training phases, one step after their bases. It
//   encodes at 2.0 to 2.6 GB/s and decodes at 4.1 to 5.9 GB/s. BF16 was compared with F32 in one run, on chunks of
//   trained_step_testing.hpp: 1.55 and 1.6 times as long for each byte.
// - scaled_by under a higher load (memcpy 62 ps, float_split 135 and 73 ps in the same run), on exp_avg of state 301 as
//   multiples of 0.02 of an update, with exp_avg_sq of three mantissa bits as its peer, with and without the base:
//     codec_benchmark --lattice=0.0200000014,2.00000003e-10 --corpus=301.multiples,F32,300.multiples,301.squares
// - clustered under a still higher load, by processor time (memcpy 70 ps, float_split 156 and 81 ps there), on
//   8,388,608 normally distributed numbers in 16 clusters: 537 and 259 ps, scaled by 56 / 70. With 256 clusters,
//   encoding takes twice as long and decoding the same time:
//     codec_benchmark --clusters=16.clusters --corpus=normal.16,F32
// - gradient_step on a machine with other work, by the fastest of 20 runs, on first moments of an autocast training,
//   with factored_split for its numbers. With float_split it takes 180 and 55 ps, and sums take 570 and 240 ps.
//
// Changing a number changes which codecs are chosen, and so the bytes of new files. Old files stay readable.
#include <array>
#include <optional>

#include "plan/cost_model.hpp"

namespace bitsnap::plan {
namespace {

using codec::CodecId;

struct Row {
  CodecId codec;
  std::optional<DType> dtype;  // nullopt: all other dtypes
  bool on_base;
  CodingSpeed speed;
};

// The first matching row counts.
constexpr std::array<Row, 25> kRows{{
    {CodecId::raw, {}, false, {0, 50}},  // written from the buffer that it was read into
    {CodecId::constant, {}, false, {20, 20}},
    {CodecId::same, {}, true, {20, 50}},
    {CodecId::zstd, {}, false, {1000, 680}},
    {CodecId::byte_group, DType::f32, false, {250, 150}},
    {CodecId::byte_group, DType::f32, true, {560, 290}},
    {CodecId::byte_group, DType::f16, false, {400, 350}},
    {CodecId::byte_group, {}, false, {380, 210}},
    {CodecId::byte_group, {}, true, {980, 450}},
    {CodecId::float_split, DType::bf16, false, {165, 70}},  // coded in lanes, as F32 is; other dtypes in byte planes
    {CodecId::float_split, DType::f32, false, {110, 65}},
    {CodecId::float_split, {}, false, {390, 350}},
    {CodecId::bitmask, {}, true, {130, 120}},
    {CodecId::ordinal_delta, DType::f32, true, {255, 240}},
    {CodecId::ordinal_delta, {}, true, {270, 205}},
    {CodecId::factored_split, DType::f32, false, {280, 130}},
    {CodecId::factored_split, {}, false, {450, 225}},
    {CodecId::rounded_from, DType::f16, false, {280, 195}},
    {CodecId::rounded_from, {}, false, {145, 100}},
    {CodecId::optimizer_step, DType::bf16, true, {680, 350}},
    {CodecId::optimizer_step, {}, true, {440, 220}},
    {CodecId::scaled_by, {}, false, {180, 160}},
    {CodecId::scaled_by, {}, true, {295, 205}},
    {CodecId::clustered, {}, false, {430, 210}},
    {CodecId::gradient_step, {}, true, {340, 140}},
}};

}  // namespace

CodingSpeed reference_speed(CodecId codec, DType dtype, bool on_base) noexcept {
  for (const Row& row : kRows) {
    if (row.codec == codec && row.on_base == on_base && row.dtype.value_or(dtype) == dtype) return row.speed;
  }
  return {1000, 1000};  // not measured
}

// A chunk has at most 2^22 bytes, so no product overflows 64 bits.
std::uint64_t modelled_ps(const CostModel& model, const CodedChunk& chunk) noexcept {
  constexpr std::uint64_t kPsPerSecond = 1'000'000'000'000;
  const std::uint64_t store = chunk.payload_bytes * kPsPerSecond / model.store_bytes_per_second;
  const std::uint64_t encode = chunk.raw_bytes * chunk.speed.encode_ps / model.encoders;
  const std::uint64_t decode = chunk.raw_bytes * chunk.speed.decode_ps * chunk.decodes / model.encoders;
  return encode + store + (store + decode) * model.restore_permille / 1000;
}

}  // namespace bitsnap::plan
