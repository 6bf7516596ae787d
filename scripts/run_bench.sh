#!/usr/bin/env bash
# run_bench.sh [arguments of python -m bench]: installs the available baselines, builds the shared library of the
# benchmark and runs it. A baseline that cannot be installed is skipped, and the results say so.
set -euo pipefail
cd "$(dirname "$0")/.."

# The constraints also pin torch and numpy, so installed versions stay.
install=(.venv/bin/python -m pip install --quiet --disable-pip-version-check
  --constraint scripts/constraints.txt --constraint scripts/requirements-demo.txt)
stamp=.venv/.baselines-installed
if [ ! -e "$stamp" ] || [ scripts/requirements-bench.txt -nt "$stamp" ] || [ scripts/constraints.txt -nt "$stamp" ]; then
  echo "installing the baselines of the benchmark into .venv"
  grep -v '^#' scripts/requirements-bench.txt | while read -r baseline; do
    "${install[@]}" "$baseline" || echo "run_bench: cannot install $baseline; it will be left out" >&2
  done
  touch "$stamp"
fi

mkdir -p build
cmake --preset bench >build/configure-bench.log 2>&1 || { cat build/configure-bench.log; exit 1; }
cmake --build build/bench --target bitsnap_bench --parallel "${CMAKE_BUILD_PARALLEL_LEVEL:-$(nproc)}"
exec .venv/bin/python -m bench "$@"
