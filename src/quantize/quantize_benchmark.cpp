// Speed of the quantizers with their tallies, at each CPU level, chunk by chunk on one thread, and of fitting clusters.
// Bytes per second count the elements once. Quantizing in place is as fast for quantized elements, because nothing
// branches. The chunk stays in the cache.
#include <benchmark/benchmark.h>

#include <random>
#include <string>
#include <vector>

#include <bitsnap/cpu.hpp>
#include <bitsnap/tensor.hpp>

#include "quantize/clusters.hpp"
#include "quantize/round_mantissa.hpp"

namespace bitsnap::quantize {
namespace {

std::vector<std::byte> normal_chunk(DType dtype) {
  std::mt19937_64 random(1);
  std::normal_distribution<float> normal(0, 1e-3F);
  std::vector<std::byte> chunk(kChunkElements * element_size(dtype));
  for (std::size_t i = 0; i < chunk.size(); i += 4) store_le(chunk.data() + i, normal(random));
  return chunk;
}

void bench_quantizer(benchmark::State& state, CpuLevel level, const Quantizer& quantizer, DType dtype) {
  force_cpu_level(level);
  std::vector<std::byte> chunk = normal_chunk(dtype);
  for (auto _ : state) {
    ErrorTally tally;
    if (!quantizer.quantize(dtype, chunk, {}, &tally)) state.SkipWithError("not quantized");
    benchmark::DoNotOptimize(tally);
  }
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(chunk.size()));
}

void bench_fit(benchmark::State& state, CpuLevel level, ClusterLabels labels) {
  force_cpu_level(level);
  const std::vector<std::byte> chunk = normal_chunk(DType::f32);
  for (auto _ : state) benchmark::DoNotOptimize(fit_clusters(labels, chunk));
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(chunk.size()));
}

const bool kRegistered = [] {
  const std::vector<std::byte> chunk = normal_chunk(DType::f32);
  for (const CpuLevel level : kCpuLevels) {
    if (!has_cpu_level(level)) continue;
    const std::string at = std::string("/") + std::string(cpu_level_name(level));
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
      const std::string name = "round_mantissa/" + std::string(dtype_name(dtype)) + at;
      const RoundMantissa rounding = *RoundMantissa::of(dtype, 3);
      benchmark::RegisterBenchmark(name.c_str(),
                                   [=](benchmark::State& state) { bench_quantizer(state, level, rounding, dtype); });
    }
    for (const DType weights : {DType::bf16, DType::f16}) {
      const std::string name = "round_mantissa/master_of_" + std::string(dtype_name(weights)) + at;
      const RoundMantissa rounding = *RoundMantissa::of_master(weights, 4);
      benchmark::RegisterBenchmark(
          name.c_str(), [=](benchmark::State& state) { bench_quantizer(state, level, rounding, DType::f32); });
    }
    for (const ClusterLabels labels : {ClusterLabels::four_bits, ClusterLabels::eight_bits}) {
      const std::string of = labels == ClusterLabels::four_bits ? "16" : "256";
      const Clusters clusters = fit_clusters(labels, chunk);
      benchmark::RegisterBenchmark(("clusters/" + of + at).c_str(), [=](benchmark::State& state) {
        bench_quantizer(state, level, clusters, DType::f32);
      });
      benchmark::RegisterBenchmark(("fit_clusters/" + of + at).c_str(),
                                   [=](benchmark::State& state) { bench_fit(state, level, labels); });
    }
  }
  return true;
}();

}  // namespace
}  // namespace bitsnap::quantize
