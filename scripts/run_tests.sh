#!/usr/bin/env bash
# run_tests.sh all     every stage; what `make test` and CI run
# run_tests.sh quick   the optimised C++ tests only, with samples in place of all crashes
# run_tests.sh STAGE...   stages by name: dev asan fuzz tsan aarch64 pytest
# The first stage that fails ends the run. FUZZ_SECONDS (5) is what each fuzz target gets besides its corpus.
set -euo pipefail
cd "$(dirname "$0")/.."

fuzz_seconds=${FUZZ_SECONDS:-5}
jobs=${CMAKE_BUILD_PARALLEL_LEVEL:-$(nproc)}

configure_and_build() {  # PRESET [cmake --build arguments]
  local preset=$1
  shift
  cmake --preset "$preset" >"build/configure-$preset.log" 2>&1 || { cat "build/configure-$preset.log"; return 1; }
  cmake --build "build/$preset" --parallel "$jobs" "$@"
}

run_ctest() {  # PRESET [ctest arguments]
  local preset=$1
  shift
  ctest --test-dir "build/$preset" --output-on-failure --no-tests=error --parallel "$jobs" "$@"
}

# Optimised; with the layering check and the installed library used from outside.
stage_dev() {
  configure_and_build dev
  run_ctest dev
}

# AddressSanitizer and UndefinedBehaviorSanitizer over the same tests, and every fuzz target over its corpus.
stage_asan() {
  configure_and_build asan
  run_ctest asan
}

# What fuzzing finds goes to build/fuzz-findings/; inputs worth keeping are added to fuzz/corpus by hand.
stage_fuzz() {
  configure_and_build asan
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

# ThreadSanitizer over what runs in parallel, on plain threads, as it cannot see into oneTBB.
stage_tsan() {
  configure_and_build tsan --target parallel_tests
  run_ctest tsan --label-regex parallel
}

# The kernels of another machine: the layers up to entropy for aarch64, under emulation. On such a machine `dev` has them.
stage_aarch64() {
  if [ "$(uname -m)" != x86_64 ]; then
    echo "left out: cross-compiled from x86-64 only"
    return
  fi
  configure_and_build aarch64 --target base_test tensor_test entropy_test rans_fuzz huffman_fuzz
  run_ctest aarch64 --tests-regex '^(base_test|tensor_test|entropy_test|rans_fuzz|huffman_fuzz)$'
}

# One worker per core; the tests of one file run in one worker, because they share what the file's fixtures make.
stage_pytest() {
  .venv/bin/python -m pytest --quiet --numprocesses "$jobs" --dist loadfile "$@"
}

case "${1:-all}" in
  all) stages=(dev asan fuzz tsan aarch64 pytest) ;;
  quick)
    mkdir -p build
    configure_and_build dev
    BITSNAP_QUICK_TESTS=1 run_ctest dev --label-exclude 'install|slow'
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
  # Not in a condition: there `set -e` would be off within the stage.
  "stage_$stage"
  times+=("$stage $((SECONDS - stage_began)) s")
done
printf '=== passed: '
printf '%s, ' "${times[@]}"
echo "$((SECONDS - began)) s in all"
