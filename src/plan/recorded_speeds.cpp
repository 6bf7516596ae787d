// How long the codecs take, recorded once: an estimate of any machine's, whose choices are the same everywhere.
//
// 22 November 2026, one core of a shared AMD EPYC (Zen 5, AVX-512 with VBMI2) under KVM, g++ 12.2 -O3, states 300 and
// 301 of the benchmark's corpus (beta95), from memory to memory; memcpy 48 ps a byte (21 GB/s) beside bf16 and 56
// beside f32 in the same run:
//
//   role_elements.py state-000301.safetensors 301, and so on
//   codec_benchmark --corpus=301/weight.bfloat16.raw,BF16,300/weight.bfloat16.raw (and weight.float16,
//     master.float32, exp_avg_sq.float32) --benchmark_enable_random_interleaving=true --benchmark_repetitions=5
//
// optimizer_step, which has inputs of more than one kind, was timed apart, chunk by chunk: master and exp_avg_sq of all
// phases one step after their bases, 2.0 to 2.6 GB/s and 4.1 to 5.9 GB/s.
//
// scaled_by was timed under more load, with memcpy at 62 ps and float_split at 135 and 73 ps in the same run: exp_avg
// of 301 as multiples of 0.02 of an update, beside exp_avg_sq with three bits of mantissa, alone and against that of
// 300:
//
//   codec_benchmark --lattice=0.0200000014,2.00000003e-10 --corpus=301.multiples,F32,300.multiples,301.squares
//
// clustered was timed under still more load, by the processor's time, with memcpy at 70 ps and float_split at 156 and
// 81 ps in the same run: 8,388,608 normal numbers of 16 clusters, 537 and 259 ps, taken down by as much as memcpy was
// above 56. With 256 clusters writing takes twice as long, and reading no longer:
//
//   codec_benchmark --clusters=16.clusters --corpus=normal.16,F32
//
// Changing a number changes what is written, though never what is read back.
#include <array>
#include <optional>

#include "plan/cost_model.hpp"

namespace bitsnap::plan {
namespace {

using codec::CodecId;

struct Row {
  CodecId codec;
  std::optional<DType> dtype;  // nullopt: all others of the codec
  bool on_base;
  CodingSpeed speed;
};

// The first that fits counts.
constexpr std::array<Row, 23> kRows{{
    {CodecId::raw, {}, false, {0, 50}},  // written from where it was read to
    {CodecId::constant, {}, false, {20, 20}},
    {CodecId::same, {}, true, {20, 50}},
    {CodecId::zstd, {}, false, {1000, 680}},
    {CodecId::byte_group, DType::f32, false, {250, 150}},
    {CodecId::byte_group, DType::f32, true, {560, 290}},
    {CodecId::byte_group, DType::f16, false, {400, 350}},
    {CodecId::byte_group, {}, false, {380, 210}},
    {CodecId::byte_group, {}, true, {980, 450}},
    {CodecId::float_split, DType::bf16, false, {165, 70}},  // lanes, as F32; all others planes
    {CodecId::float_split, DType::f32, false, {110, 65}},
    {CodecId::float_split, {}, false, {390, 350}},
    {CodecId::bitmask, {}, true, {130, 120}},
    {CodecId::ordinal_delta, DType::f32, true, {255, 240}},
    {CodecId::ordinal_delta, {}, true, {270, 205}},
    {CodecId::factored_split, DType::f32, false, {280, 130}},
    {CodecId::factored_split, {}, false, {450, 225}},
    {CodecId::rounded_from, DType::f16, false, {280, 195}},
    {CodecId::rounded_from, {}, false, {145, 100}},
    {CodecId::optimizer_step, {}, true, {440, 220}},
    {CodecId::scaled_by, {}, false, {180, 160}},
    {CodecId::scaled_by, {}, true, {295, 205}},
    {CodecId::clustered, {}, false, {430, 210}},
}};

}  // namespace

CodingSpeed recorded_speed(CodecId codec, DType dtype, bool on_base) noexcept {
  for (const Row& row : kRows) {
    if (row.codec == codec && row.on_base == on_base && row.dtype.value_or(dtype) == dtype) return row.speed;
  }
  return {1000, 1000};  // nobody measured it: the slowest
}

}  // namespace bitsnap::plan
