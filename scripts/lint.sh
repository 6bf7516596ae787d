#!/usr/bin/env bash
# lint.sh         formatting, ruff, mypy and clang-tidy of everything; what `make lint` runs
# lint.sh quick   without clang-tidy, which takes some minutes
# Changes nothing. clang-tidy runs over the compile database of the preset `clang`, and skips batches of files whose text,
# headers and settings have not changed since they passed.
set -euo pipefail
cd "$(dirname "$0")/.."

jobs=${CMAKE_BUILD_PARALLEL_LEVEL:-$(nproc)}
failed=0
check() {
  echo "=== $1"
  shift
  "$@" || failed=1
}

mapfile -t cpp < <(git ls-files --cached --others --exclude-standard '*.hpp' '*.cpp' '*.cu')
mapfile -t python < <(git ls-files --cached --others --exclude-standard '*.py' '*.pyi')
check clang-format clang-format-19 --dry-run -Werror "${cpp[@]}"
check "ruff format" .venv/bin/ruff format --check --quiet "${python[@]}"
check "ruff check" .venv/bin/ruff check --quiet "${python[@]}"
check mypy .venv/bin/mypy
if [ "${1:-}" != quick ]; then
  mkdir -p build
  cmake --preset clang -DBITSNAP_BENCHMARKS=ON >build/configure-clang.log 2>&1 || { cat build/configure-clang.log; exit 1; }
  check clang-tidy .venv/bin/python scripts/run_tidy.py --build build/clang --jobs "$jobs"
fi

if [ "$failed" -ne 0 ]; then
  echo "=== lint failed"
  exit 1
fi
echo "=== lint passed"
