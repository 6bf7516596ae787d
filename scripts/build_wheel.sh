#!/usr/bin/env bash
# build_wheel.sh PYTHON VENV OUTPUT
# Makes the source distribution and, from that alone in an empty folder, the wheel for PYTHON's version, into the empty
# folder OUTPUT. The wheel needs the C library only: auditwheel names the oldest one in the wheel's name, and fails
# if the wheel needs anything else. VENV gets the tools.
set -euo pipefail
cd "$(dirname "$0")/.."

python=$1
venv=$(realpath --canonicalize-missing "$2")
output=$(realpath --canonicalize-missing "$3")

scripts/make_venv.sh "$python" "$venv" scripts/requirements-build.txt scripts/requirements-wheel.txt scripts/constraints.txt
scratch=$output/scratch
rm -rf "$output"
mkdir -p "$scratch"

"$venv/bin/python" -m build --sdist --no-isolation --outdir "$output" . >"$scratch/sdist.log" 2>&1 || { cat "$scratch/sdist.log"; exit 1; }
tar --extract --gzip --file "$output"/bitsnap-*.tar.gz --directory "$scratch"
# The depth of the build tree is that of the other ones, so that its objects are found in ccache.
echo "building the wheel"
(cd "$scratch"/bitsnap-* && CC=gcc CXX=g++ "$venv/bin/python" -m build --wheel --no-isolation --outdir "$scratch" \
  --config-setting=build-dir=build/wheel --config-setting=cmake.define.BITSNAP_WERROR=ON \
  --config-setting=cmake.define.BITSNAP_SELF_CONTAINED=ON .) \
  >"$scratch/wheel.log" 2>&1 || { tail -n 60 "$scratch/wheel.log"; exit 1; }
PATH="$venv/bin:$PATH" "$venv/bin/auditwheel" repair --wheel-dir "$output" "$scratch"/bitsnap-*.whl \
  >"$scratch/auditwheel.log" 2>&1 || { cat "$scratch/auditwheel.log"; exit 1; }
rm -rf "$scratch"
ls -s --human-readable "$output"
