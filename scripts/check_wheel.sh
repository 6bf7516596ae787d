#!/usr/bin/env bash
# check_wheel.sh WHEEL PYTHON [TORCH_VENV]
# Checks a wheel on this machine: its contents, and that it works in clean environments of PYTHON, with the newest numpy
# and with the oldest, both without torch. With TORCH_VENV, an environment that has the packages of the tests, also
# with the torch and numpy that lie there.
set -euo pipefail
cd "$(dirname "$0")/.."

wheel=$(realpath "$1")
python=$2
torch_venv=${3:-}
limit_bytes=8000000
# Of the command, they need no torch; of the package, they do.
command_tests=(tests/cli/cli_round_trip_test.py tests/cli/cli_files_test.py)
package_tests=(tests/python/store/store_files_test.py tests/python/store/store_labels_test.py tests/python/store/store_remove_test.py
  tests/python/store/store_replace_test.py tests/python/engine/checkpointer_done_test.py tests/python/documents/guide_snippets_test.py)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

fail() {
  echo "check_wheel: $(basename "$wheel"): $1" >&2
  exit 1
}

size=$(stat --format=%s "$wheel")
[ "$size" -le "$limit_bytes" ] || fail "has $size bytes, expected $limit_bytes at most"
[[ $wheel == *manylinux* ]] || fail "is for no manylinux platform, so that package indexes reject it"
glibc=$(sed -n 's/.*manylinux_2_\([0-9]*\)_.*/\1/p' <<<"$wheel")
[ "$glibc" -le 34 ] || fail "needs glibc 2.$glibc, expected 2.34 or older"
mkdir "$scratch/files"
"$python" -m zipfile -e "$wheel" "$scratch/files"
if (cd "$scratch/files" && find . -name '*_test*' -o -name '*.?pp' -o -name '*.libs' | grep .); then
  fail "contains the files above"
fi
# libm, libgcc_s and the loader come with the C library.
needed=$(find "$scratch/files" -type f \( -name '*.so' -o -path '*/scripts/bitsnap' \) -exec readelf --dynamic {} + |
  sed -n 's/.*NEEDED.*\[\(.*\)\]/\1/p' | sort -u | grep -vE '^(libc|libm|libgcc_s|ld-linux-[a-z0-9-]+)\.so\.[0-9]+$' || true)
[ -z "$needed" ] || fail "needs $needed, expected nothing but the C library"

pip() {  # VENV ARGUMENTS...
  "$scratch/$1/bin/python" -m pip install --quiet --disable-pip-version-check "${@:2}"
}
check() {  # VENV
  local run=("$scratch/$1/bin/python" -W error "$PWD/tests/wheel/readme_lines.py" "$PWD/README.md")
  (cd "$scratch" && "${run[@]}" >"$scratch/log" 2>&1) || { cat "$scratch/log"; fail "README.md fails in $1"; }
  BITSNAP_CLI="$scratch/$1/bin/bitsnap" "$scratch/$1/bin/python" -m pytest --quiet -p no:cacheprovider "${@:2}"
}

for numpy in 2 1.26; do
  name=numpy-$numpy
  if [ "$numpy" = 1.26 ] && ! "$python" -c 'import sys; sys.exit(sys.version_info >= (3, 13))'; then
    echo "=== numpy 1.26 left out: it has no wheel for this Python"
    continue
  fi
  "$python" -m venv "$scratch/$name"
  pip "$name" "$wheel[report]" "numpy==$numpy.*" pytest pytest-timeout hypothesis
  echo "=== $("$scratch/$name/bin/python" -c 'import bitsnap, numpy; print("numpy", numpy.__version__, bitsnap.__file__)')"
  check "$name" "${command_tests[@]}"
done

if [ -n "$torch_venv" ]; then
  "$python" -m venv "$scratch/torch"
  pip torch --no-deps "$wheel"
  # After the folder of this environment, so that its bitsnap comes first.
  "$(realpath --no-symlinks "$torch_venv")/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))' \
    >"$("$scratch/torch/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/torch_venv.pth"
  echo "=== $("$scratch/torch/bin/python" -c 'import bitsnap, torch; print("torch", torch.__version__, bitsnap.__file__)')"
  echo "=== the first hour of a new user"
  "$scratch/torch/bin/python" tests/wheel/first_hour.py
  check torch "${package_tests[@]}" -k "not guide_snippets or README"
fi
echo "=== passed: $(basename "$wheel"), $size bytes"
