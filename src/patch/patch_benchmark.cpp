// Making and applying patches on one thread, against copying the weights. Weights are normal, and move as under Adam at
// a rate near their ULPs; the argument is the rate in units of 1e-8.
#include <benchmark/benchmark.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include <bitsnap/patch.hpp>

#include "patch/moving_weights_testing.hpp"

namespace bitsnap::patch {
namespace {

constexpr std::uint64_t kElements = std::uint64_t{1} << 25;
constexpr std::int64_t kBytes = 2 * static_cast<std::int64_t>(kElements);

struct Versions {
  explicit Versions(double rate) : base(normal_weights(kElements, 1)), weights(base) { move_weights(weights, rate, 2); }

  std::vector<std::uint16_t> base;
  std::vector<std::uint16_t> weights;
};

WeightMemory memory_of(std::vector<std::uint16_t>& tensor) {
  return {.name = "weight",
          .dtype = DType::bf16,
          .dtype_name = {},
          .shape = {tensor.size()},
          .memory = reinterpret_cast<std::byte*>(tensor.data()),
          .size_bytes = 2 * tensor.size()};
}

Versions& versions(double rate) {
  static double made_for = -1;
  static std::vector<Versions> only;
  if (made_for != rate) {
    only.clear();
    only.emplace_back(rate);
    made_for = rate;
  }
  return only.front();
}

double rate_of(const benchmark::State& state) { return static_cast<double>(state.range(0)) * 1e-8; }

void copy(benchmark::State& state) {
  const Versions& own = versions(rate_of(state));
  std::vector<std::uint16_t> to(own.base.size());
  for (auto _ : state) {
    std::memcpy(to.data(), own.base.data(), 2 * to.size());
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * kBytes);
}

void make(benchmark::State& state) {
  Versions& own = versions(rate_of(state));
  const WeightMemory weights = memory_of(own.weights);
  const WeightMemory base = memory_of(own.base);
  std::size_t size = 0;
  for (auto _ : state) size = make_patch({&weights, 1}, {&base, 1}, {.threads = 1})->size();
  state.SetBytesProcessed(state.iterations() * kBytes);
  state.counters["ratio"] = 2.0 * static_cast<double>(kElements) / static_cast<double>(size);
}

void stage(benchmark::State& state) {
  Versions& own = versions(rate_of(state));
  const WeightMemory weights = memory_of(own.weights);
  const WeightMemory base = memory_of(own.base);
  const auto bytes = make_patch({&weights, 1}, {&base, 1});
  const auto patch = Patch::open(*bytes);
  double changed = 0;
  for (auto _ : state) changed = static_cast<double>(patch->stage({&base, 1}, {.threads = 1})->changed_elements());
  state.SetBytesProcessed(state.iterations() * kBytes);
  state.counters["changed%"] = 100 * changed / static_cast<double>(kElements);
  state.counters["bits"] = 8 * static_cast<double>(bytes->size()) / changed;
}

void apply(benchmark::State& state) {
  Versions& own = versions(rate_of(state));
  const WeightMemory weights = memory_of(own.weights);
  const WeightMemory base = memory_of(own.base);
  const auto bytes = make_patch({&weights, 1}, {&base, 1});
  std::vector<std::uint16_t> target = own.base;
  const WeightMemory to = memory_of(target);
  auto staged = Patch::open(*bytes)->stage({&to, 1});
  for (auto _ : state) staged->apply(1);
  state.SetBytesProcessed(state.iterations() * kBytes);
}

void rates(benchmark::internal::Benchmark* benchmark) {
  benchmark->Arg(2)->Arg(18)->Arg(400)->Unit(benchmark::kMillisecond);
}

BENCHMARK(copy)->Arg(2)->Unit(benchmark::kMillisecond);
BENCHMARK(make)->Apply(rates);
BENCHMARK(stage)->Apply(rates);
BENCHMARK(apply)->Apply(rates);

}  // namespace
}  // namespace bitsnap::patch
