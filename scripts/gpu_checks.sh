#!/usr/bin/env bash
# gpu_checks.sh [STEP...]   what can only be checked and measured on a machine with an NVIDIA GPU; all steps by default:
#   smoke       the programs of the next steps with small states, to find what fails at all
#   tests       tests/gpu with tensors on the GPU: streams, layouts, captured graphs, memory that is short
#   resume      a training with FSDP2 that is killed and resumed, with equal losses
#   stall       saves of 10 GB beside a pinned copy, torch's async_save and torch.save, and restores in place
#   throughput  what a training loses while the agent compresses on 2, 4, 8 and 16 processors
#   nvcomp      sizes and times beside NVIDIA's nvCOMP
#   large       saves of 20 GB beside a pinned copy, without torch's ways
#   build       gpu_check, the check of the kernels in gpu/; needs nvcc and bitsnap's libraries
#   equal       payloads and elements of the kernels are those of the CPU's codec, byte for byte
#   kernels     the speed of the kernels, and what a save and a restore would gain from them
#   sanitize    the kernels under compute-sanitizer, for memory and for races, and saves of a state that is overwritten
# A step that fails or takes longer than its limit does not stop the others. A table of the steps is printed last. The
# exit status is 1 if one failed or was left out.
#
# RESULTS (build/gpu-results) is a folder that gets results.md, results.jsonl and log.txt, each with what is added to it.
# SECONDS_IN_ALL (no limit) is when all steps have to be over: the last ones get less time, or are left out.
# PYTHON (.venv/bin/python) runs the steps. If PACK (build/gpu-pack) exists, as scripts/pack_for_gpu.sh makes it, its
# wheels are installed into build/gpu-site for these steps alone, and its gpu_check is used.
# With DEVICE=cpu, the first six steps run on the CPU with small states, as a test of themselves.
set -euo pipefail
cd "$(dirname "$0")/.."

device=${DEVICE:-cuda}
python=${PYTHON:-.venv/bin/python}
pack=${PACK:-build/gpu-pack}
results=${RESULTS:-build/gpu-results}
site=build/gpu-site
check=build/cuda/gpu/gpu_check
[ ! -x "$pack/gpu_check" ] || check=$pack/gpu_check
declare -A limits=([smoke]=120 [tests]=200 [resume]=120 [stall]=330 [throughput]=220 [nvcomp]=200 [large]=300 [build]=500
  [equal]=60 [kernels]=120 [sanitize]=300)

# The programs find bitsnap in PYTHONPATH or in PYTHON's environment, and bench/ in the current folder.
measure() {  # MODULE ARGUMENTS...
  "$python" -m "$1" --device "$device" --results "$results" "${@:2}"
}
small=(--gigabytes 0.01 --width 128 --block 32 --first 3)

step_smoke() {
  local failed=0
  "$python" -m bench.gpu_stall --device "$device" "${small[@]}" --batch 1 --steps 1 --rounds 1 --buffer-gib 1 || failed=1
  "$python" -m bench.gpu_throughput --device "$device" "${small[@]}" --batch 1 --steps 4 --every 2 --threads 1 || failed=1
  "$python" -m bench.nvcomp_comparison --device "$device" "${small[@]}" --steps 1 --rounds 1 --buffer-gib 1 || failed=1
  return "$failed"
}
step_tests() {
  local parallel=()
  if "$python" -c 'import xdist' 2>/dev/null; then parallel=(--numprocesses 4); fi
  # Warnings of another version of torch are no failures.
  "$python" -m pytest tests/gpu -m 'not slow' -W default -p no:cacheprovider "${parallel[@]}"
}
step_resume() { "$python" -m gpu.fsdp_resume --device "$device" --results "$results"; }
step_stall() {
  if [ "$device" = cpu ]; then
    measure bench.gpu_stall "${small[@]}" --batch 1 --steps 1 --rounds 2 --buffer-gib 1
  else
    measure bench.gpu_stall --gigabytes 10 --rounds 5 --seconds 120
  fi
}
step_throughput() {
  if [ "$device" = cpu ]; then
    measure bench.gpu_throughput "${small[@]}" --batch 1 --steps 4 --every 2 --threads 1,2
  else
    measure bench.gpu_throughput
  fi
}
step_nvcomp() {
  if [ "$device" = cpu ]; then
    measure bench.nvcomp_comparison "${small[@]}" --steps 1 --buffer-gib 1
  else
    measure bench.nvcomp_comparison
  fi
}
step_large() { measure bench.gpu_stall --gigabytes 20 --rounds 3 --ways '^$' --first 10 --steps 5; }
step_build() {
  cmake --preset cuda >/dev/null
  cmake --build build/cuda --parallel "$(nproc)" --target gpu_check
}
step_equal() { "$check" 64; }
step_kernels() {
  nvidia-smi --query-gpu=name,driver_version,clocks.sm --format=csv,noheader
  for chunks in 128 512 2048 4096; do "$check" "$chunks"; done
}
step_sanitize() {
  for tool in memcheck racecheck; do
    compute-sanitizer --tool "$tool" --error-exitcode 1 "$check" 4
  done
  compute-sanitizer --tool memcheck --error-exitcode 1 "$python" -m pytest tests/gpu/gpu_overwriting_test.py \
    -k 'overwritten or does_not_wait' -W default -p no:cacheprovider --timeout 200
}

if [ "${1:-}" = --one ]; then
  "step_$2"
  exit
fi

if [ $# -eq 0 ]; then
  set -- smoke tests resume stall throughput nvcomp
  [ "$device" = cpu ] || set -- "$@" large equal kernels sanitize
fi
for step in "$@"; do
  [ -n "${limits[$step]:-}" ] || { echo "gpu_checks: there is no step $step" >&2; exit 2; }
done
mkdir -p "$results"
export PYTHONPATH=$PWD/tests${PYTHONPATH:+:$PYTHONPATH} PYTHONUNBUFFERED=1
if compgen -G "$pack/*.whl" >/dev/null; then
  # Into a folder of its own: no package of the machine changes.
  rm -rf "$site"
  "$python" -m pip install --quiet --no-index --no-deps --no-compile --disable-pip-version-check --target "$site" "$pack"/*.whl
  export PYTHONPATH=$PWD/$site:$PYTHONPATH
fi

{
  date --utc
  nvidia-smi || true
  "$python" -c 'import sys, torch; print(sys.version, torch.__version__)' || true
  free --giga
  df --human-readable . /tmp /dev/shm || true
} >>"$results/log.txt" 2>&1

failed=0
total=${SECONDS_IN_ALL:-0}
table=("| step | result | seconds |" "|------|--------|--------:|")
for step in "$@"; do
  limit=${limits[$step]}
  if [ "$total" -gt 0 ]; then
    left=$((total - SECONDS))
    [ "$limit" -le "$left" ] || limit=$left
    if [ "$limit" -lt 20 ]; then
      failed=1
      table+=("| $step | left out: no time | 0 |")
      continue
    fi
  fi
  echo "=== $step" | tee -a "$results/log.txt"
  began=$SECONDS
  code=0
  timeout --kill-after=10 "$limit" bash "$0" --one "$step" 2>&1 | tee -a "$results/log.txt" || code=${PIPESTATUS[0]}
  case $code in
    0) result=passed ;;
    124 | 137) result="took longer than $limit s" ;;
    *) result="FAILED ($code)" ;;
  esac
  [ "$code" -eq 0 ] || failed=1
  table+=("| $step | $result | $((SECONDS - began)) |")
done
printf '%s\n' "## Steps on $device" "" "${table[@]}" "" | tee -a "$results/results.md"
exit "$failed"
