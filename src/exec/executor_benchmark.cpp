// The cost of an executor: creation with a first tiny job, a job on a running executor, and each item of a long job.
#include <benchmark/benchmark.h>

#include <memory>

#include "exec/executor.hpp"

namespace bitsnap::exec {
namespace {

using Make = std::unique_ptr<Executor> (*)(unsigned threads);

Result<void> nothing(std::size_t, std::size_t) { return {}; }

// About 10 microseconds, less than any chunk takes.
Result<void> small_work(std::size_t item, std::size_t) {
  std::uint64_t value = item;
  for (int i = 0; i < 10000; ++i) benchmark::DoNotOptimize(value = value * 6364136223846793005u + 1);
  return {};
}

void make_and_run_one_item(benchmark::State& state, Make make) {
  for (auto _ : state) benchmark::DoNotOptimize(make(0)->run_ordered(1, 0, nothing, nothing));
}

void run_four_items(benchmark::State& state, Make make) {
  const auto executor = make(0);
  for (auto _ : state) benchmark::DoNotOptimize(executor->run_ordered(4, 0, nothing, nothing));
}

void run_long(benchmark::State& state, Make make, ItemFunction work, bool ordered) {
  constexpr std::size_t kItems = 2000;
  const auto executor = make(static_cast<unsigned>(state.range(0)));
  for (auto _ : state) {
    benchmark::DoNotOptimize(ordered ? executor->run_ordered(kItems, 0, work, nothing)
                                     : executor->run(kItems, 0, work));
  }
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(kItems));
}

BENCHMARK_CAPTURE(make_and_run_one_item, default, make_executor);
BENCHMARK_CAPTURE(run_four_items, default, make_executor)->UseRealTime();
BENCHMARK_CAPTURE(run_four_items, plain, make_plain_executor)->UseRealTime();
BENCHMARK_CAPTURE(run_long, empty_ordered, make_executor, nothing, true)->Arg(1)->Arg(2)->Arg(4)->UseRealTime();
BENCHMARK_CAPTURE(run_long, empty_unordered, make_executor, nothing, false)->Arg(1)->Arg(2)->Arg(4)->UseRealTime();
BENCHMARK_CAPTURE(run_long, small_ordered, make_executor, small_work, true)->Arg(1)->Arg(2)->Arg(4)->UseRealTime();
BENCHMARK_CAPTURE(run_long, small_unordered, make_executor, small_work, false)->Arg(1)->Arg(2)->Arg(4)->UseRealTime();

}  // namespace
}  // namespace bitsnap::exec
