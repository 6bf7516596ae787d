#!/usr/bin/env bash
# pack_for_gpu.sh PYTHON [nvcomp]
# Makes build/gpu-pack: what scripts/gpu_checks.sh needs on a machine with a GPU that has neither a network nor the
# libraries that bitsnap is built from. The machine needs Python of the same version as PYTHON, with torch, numpy,
# pytest and pytest-timeout, and an x86-64 processor.
#   bitsnap's wheel for PYTHON, which needs its headers
#   gpu_check, if there is nvcc here
#   with `nvcomp`, the packages of NVIDIA's nvCOMP from PyPI, under a license of NVIDIA's that you accept by using them
# Together 45 MB, 11 MB without nvCOMP.
set -euo pipefail
cd "$(dirname "$0")/.."

python=$1
pack=build/gpu-pack

scripts/build_wheel.sh "$pack" "$python"
rm -f "$pack"/*.tar.gz
if command -v nvcc >/dev/null; then
  mkdir -p build
  cmake --preset cuda >build/configure-cuda.log
  cmake --build build/cuda --target gpu_check
  strip -o "$pack/gpu_check" build/cuda/gpu/gpu_check
else
  echo "pack_for_gpu: there is no nvcc, so gpu_check is left out"
fi
if [ "${2:-}" = nvcomp ]; then
  "$python" -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: --dest "$pack" \
    nvidia-nvcomp-cu13==6.0.0.12 nvidia-libnvcomp-cu13==6.0.0.12
fi
ls -s --human-readable "$pack"
