#!/usr/bin/env bash
# run_benchmarks.sh [google-benchmark arguments]: builds the benchmarks and runs them one by one.
set -euo pipefail
cd "$(dirname "$0")/.."

mkdir -p build
cmake --preset bench >build/configure-bench.log 2>&1 || { cat build/configure-bench.log; exit 1; }
cmake --build build/bench --parallel "${CMAKE_BUILD_PARALLEL_LEVEL:-$(nproc)}"
mapfile -t benchmarks < <(find build/bench -type f -name '*_benchmark' -perm -u+x | sort)
[ "${#benchmarks[@]}" -gt 0 ] || { echo "there are no benchmarks" >&2; exit 1; }
for benchmark in "${benchmarks[@]}"; do
  echo "=== $(basename "$benchmark")"
  "$benchmark" "$@"
done
