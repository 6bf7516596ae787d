#!/usr/bin/env bash
# make_venv.sh PYTHON VENV REQUIREMENTS...
# Creates the virtual environment and installs the pinned packages. A file constraints*.txt only limits versions; the
# packages of a file *-no-deps.txt are installed without those that they depend on.
set -euo pipefail

python=$1
venv=$2
shift 2

if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
  found=$("$python" --version 2>&1 || true)
  echo "bitsnap needs Python 3.11 or newer; '$python' gives: ${found:-nothing}. Name another: make PYTHON=python3.12" >&2
  exit 1
fi

arguments=()
alone=()
for file in "$@"; do
  case "$file" in
    */constraints*.txt) arguments+=(--constraint "$file") ;;
    *-no-deps.txt) alone+=(--requirement "$file") ;;
    *) arguments+=(--requirement "$file") ;;
  esac
done

[ -x "$venv/bin/python" ] || "$python" -m venv "$venv"
echo "installing the Python packages into $venv"
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-compile "${arguments[@]}"
if [ ${#alone[@]} -gt 0 ]; then
  # DeepSpeed compiles nothing now, and builds with the torch that was installed above.
  DS_BUILD_OPS=0 "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-compile --no-deps --no-build-isolation \
    "${alone[@]}"
fi
