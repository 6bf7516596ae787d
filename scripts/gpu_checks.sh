#!/usr/bin/env bash
# gpu_checks.sh [STEP...]   what can only be checked on a machine with an NVIDIA GPU; all steps by default:
#   build      build/cuda/gpu/gpu_check, which then runs on machines without a compiler, too
#   equal      payloads and elements are those of the CPU's codec, byte for byte
#   sanitize   the same under compute-sanitizer, for memory and for races
#   measure    the speed of the kernels
# Each step is meant to take less than ten minutes. Nothing else of the build or the tests needs a GPU.
set -euo pipefail
cd "$(dirname "$0")/.."

check=build/cuda/gpu/gpu_check

step_build() {
  cmake --preset cuda >/dev/null
  cmake --build build/cuda --parallel "$(nproc)" --target gpu_check
}
step_equal() { "$check" 64; }
step_sanitize() {
  for tool in memcheck racecheck; do
    compute-sanitizer --tool "$tool" --error-exitcode 1 "$check" 4
  done
}
step_measure() {
  nvidia-smi --query-gpu=name,driver_version,clocks.sm --format=csv,noheader
  for chunks in 128 512 2048 8192; do "$check" "$chunks"; done
}

[ $# -gt 0 ] || set -- build equal sanitize measure
for step in "$@"; do
  echo "=== $step"
  "step_$step"
done
