#!/usr/bin/env bash
# build_wheel.sh OUTPUT PYTHON... | build_wheel.sh OUTPUT all
# Makes the source distribution and, from that alone in an empty folder, a wheel for each PYTHON, into the empty folder
# OUTPUT. The wheel of a Python from 3.12 on serves all later ones; `all` makes that one and the wheel for 3.11, of the
# Pythons on this machine. A wheel needs the C library only: auditwheel names the oldest one in the wheel's name, and
# fails if the wheel needs anything else. The tools are installed into build/wheel-venv-VERSION.
set -euo pipefail
cd "$(dirname "$0")/.."

output=$(realpath --canonicalize-missing "$1")
shift
pythons=("$@")
if [ "${1:-}" = all ]; then
  pythons=()
  for names in python3.11 "python3.12 python3.13 python3.14"; do
    found=
    for name in $names; do
      [ -n "$found" ] || ! "$name" --version >/dev/null 2>&1 || found=$name
    done
    if [ -n "$found" ]; then pythons+=("$found"); else echo "build_wheel: there is no ${names// /, }: left out" >&2; fi
  done
fi

scratch=$output/scratch
rm -rf "$output"
mkdir -p "$scratch"
for python in "${pythons[@]}"; do
  version=$("$python" -c 'import sys; print(f"{sys.version_info[0]}.{sys.version_info[1]}")')
  venv=$PWD/build/wheel-venv-$version
  scripts/make_venv.sh "$python" "$venv" scripts/requirements-build.txt scripts/requirements-wheel.txt \
    scripts/constraints.txt
  if [ ! -e "$output"/bitsnap-*.tar.gz ]; then
    "$venv/bin/python" -m build --sdist --no-isolation --outdir "$output" . >"$scratch/log" 2>&1 ||
      { cat "$scratch/log"; exit 1; }
  fi
  tar --extract --gzip --file "$output"/bitsnap-*.tar.gz --directory "$scratch"
  # The depth of the build tree is that of the other ones, so that its objects are found in ccache.
  echo "building the wheel with Python $version"
  (cd "$scratch"/bitsnap-*/ && CC=gcc CXX=g++ "$venv/bin/python" -m build --wheel --no-isolation --outdir "$scratch" \
    --config-setting=build-dir=build/wheel --config-setting=cmake.define.BITSNAP_WERROR=ON \
    --config-setting=cmake.define.BITSNAP_SELF_CONTAINED=ON .) \
    >"$scratch/log" 2>&1 || { tail -n 60 "$scratch/log"; exit 1; }
  PATH="$venv/bin:$PATH" "$venv/bin/auditwheel" repair -z 9 --wheel-dir "$output" "$scratch"/bitsnap-*.whl \
    >"$scratch/log" 2>&1 || { cat "$scratch/log"; exit 1; }
  rm -rf "$scratch"/bitsnap-*
done
rm -rf "$scratch"
ls -s --human-readable "$output"
