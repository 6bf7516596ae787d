#!/usr/bin/env bash
# run_tests.sh test     the optimised C++ tests with a sample of the crash tests, and the tests of the Python package that
#                       are not marked `slow`: `make test`
# run_tests.sh check    all crash tests, the slow tests, sanitizers, fuzz targets and emulated kernels: a part of `make check`
# run_tests.sh quick    the optimised C++ tests only, with a sample of the crash tests
# run_tests.sh STAGE...          stages by name: dev pytest crash slow asan fuzz tsan aarch64
# run_tests.sh build STAGE...    what these stages run, without running it
# The first failing stage ends the run. Each fuzz target runs FUZZ_SECONDS (5) besides its corpus.
set -euo pipefail
cd "$(dirname "$0")/.."

fuzz_seconds=${FUZZ_SECONDS:-5}
jobs=${CMAKE_BUILD_PARALLEL_LEVEL:-$(nproc)}
workers=$((jobs + 1))  # some tests wait for processes

configure_and_build() {  # PRESET [cmake --build arguments]
  local preset=$1
  shift
  cmake --preset "$preset" >"build/configure-$preset.log" 2>&1 || { cat "build/configure-$preset.log"; return 1; }
  cmake --build "build/$preset" --parallel "$jobs" "$@"
}

# Sets TMPDIR to a folder in memory for a stage that looks for mistakes in the code and not in the use of the disk: some
# tests wait longer for the disk than they compute. The other stages keep their files on the disk.
keep_files_in_memory() {
  local free_kb
  free_kb=$(df --output=avail /dev/shm 2>/dev/null | tail -n 1) || return 0
  if [ -w /dev/shm ] && [ "$free_kb" -gt $((4 << 20)) ]; then
    TMPDIR=$(mktemp -d /dev/shm/bitsnap.XXXXXX)
    chmod 755 "$TMPDIR"  # a test becomes another user
    export TMPDIR
    trap 'rm -rf "$TMPDIR"' EXIT
  fi
}

run_ctest() {  # PRESET [ctest arguments]
  local preset=$1
  shift
  ctest --test-dir "build/$preset" --output-on-failure --no-tests=error --parallel "$workers" "$@"
}

# Optimised, with the layering check, a program that uses the installed library, and a sample of the crash tests.
build_dev() { configure_and_build dev; }
stage_dev() { BITSNAP_QUICK_TESTS=1 run_ctest dev; }

# Every crash test.
build_crash() { build_dev; }
stage_crash() { run_ctest dev --tests-regex '^store_test'; }

# The same tests with AddressSanitizer and UndefinedBehaviorSanitizer, and every fuzz target on its corpus.
build_asan() { configure_and_build asan; }
stage_asan() (
  keep_files_in_memory
  run_ctest asan
)

# Findings go to build/fuzz-findings/; useful inputs are added to fuzz/corpus by hand.
build_fuzz() { configure_and_build asan; }
stage_fuzz() {
  local targets=build/asan/fuzz_targets.txt findings=build/fuzz-findings
  mkdir -p "$findings"
  [ -s "$targets" ] || { echo "there are no fuzz targets"; return 1; }
  xargs -P "$jobs" -I '{}' bash -c '
    target=$1 seconds=$2 findings=$3
    name=$(basename "$target")
    scratch=$(mktemp -d)
    trap "rm -rf \"$scratch\"" EXIT
    corpus=()
    [ -d "fuzz/corpus/$name" ] && corpus=("fuzz/corpus/$name")
    if ! "$target" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2560 -artifact_prefix="$findings/$name-" \
        "$scratch" "${corpus[@]}" >"$findings/$name.log" 2>&1; then
      tail -n 60 "$findings/$name.log"
      echo "fuzz target $name FAILED"
      exit 255
    fi
    echo "$name: $(tail -n 1 "$findings/$name.log")"
  ' _ '{}' "$fuzz_seconds" "$findings" <"$targets"
}

# ThreadSanitizer on parallel code, with plain threads because it does not understand oneTBB.
build_tsan() { configure_and_build tsan --target parallel_tests; }
stage_tsan() (
  keep_files_in_memory
  run_ctest tsan --label-regex parallel
)

# The layers up to entropy for aarch64, under emulation. On an aarch64 machine, `dev` covers them.
build_aarch64() {
  [ "$(uname -m)" = x86_64 ] || return 0
  configure_and_build aarch64 --target base_test tensor_test entropy_test rans_fuzz huffman_fuzz
}
stage_aarch64() {
  if [ "$(uname -m)" != x86_64 ]; then
    echo "left out: cross-compiled from x86-64 only"
    return
  fi
  run_ctest aarch64 --tests-regex '^(base_test|tensor_test|entropy_test|rans_fuzz|huffman_fuzz)$'
}

# The tests of a file share fixtures, so they run in one worker. tests/conftest.py orders the files.
run_pytest() {
  .venv/bin/python -m pytest --quiet --numprocesses "$workers" --dist loadfile --no-loadscope-reorder "$@"
}
build_pytest() { :; }  # the Makefile builds the package first
stage_pytest() { run_pytest -m 'not slow'; }
build_slow() { :; }
stage_slow() { run_pytest -m slow; }

case "${1:-test}" in
  test) stages=(dev pytest) ;;
  check) stages=(crash slow asan fuzz tsan aarch64) ;;
  quick)
    mkdir -p build
    configure_and_build dev
    BITSNAP_QUICK_TESTS=1 run_ctest dev --label-exclude install
    exit 0
    ;;
  build)
    mkdir -p build
    for stage in "${@:2}"; do "build_$stage"; done
    exit 0
    ;;
  *) stages=("$@") ;;
esac

mkdir -p build
began=$SECONDS
times=()
for stage in "${stages[@]}"; do
  echo "=== $stage"
  stage_began=$SECONDS
  # Not in a condition, which would turn `set -e` off within the stage.
  "build_$stage"
  "stage_$stage"
  times+=("$stage $((SECONDS - stage_began)) s")
done
printf '=== passed: '
printf '%s, ' "${times[@]}"
echo "$((SECONDS - began)) s in all"
