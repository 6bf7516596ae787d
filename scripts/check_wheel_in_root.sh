#!/usr/bin/env bash
# check_wheel_in_root.sh WHEEL PYTHON [FOLDER]
# Checks a wheel for Python 3.11 in a root file system of Debian 12 that has Python, venv and pip, and no compiler and no
# other package: installs it offline and runs README.md's lines, with agent and report. Needs root, debootstrap and
# a mirror. PYTHON, also 3.11, downloads the packages that the wheel depends on. The root is made in FOLDER, or used
# if it is there; without FOLDER, it is removed at the end.
set -euo pipefail
cd "$(dirname "$0")/.."

wheel=$(realpath "$1")
python=$2
[ "$(id -u)" -eq 0 ] || { echo "check_wheel_in_root: changing the root needs root" >&2; exit 1; }
command -v debootstrap >/dev/null || { echo "check_wheel_in_root: needs the package debootstrap" >&2; exit 1; }
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
root=${3:-$scratch/root}

if [ ! -e "$root/usr/bin/python3" ]; then
  echo "making a root of Debian 12 in $root"
  debootstrap --variant=minbase --include=python3,python3-venv,python3-pip bookworm "$root" >"$scratch/log" 2>&1 ||
    { tail "$scratch/log" >&2; exit 1; }
fi
rm -rf "$root/check"
mkdir "$root/check"
cp README.md tests/wheel/readme_lines.py "$root/check/"
"$python" -m pip download --quiet --disable-pip-version-check --dest "$root/check/wheels" "$wheel[report]"

# The mounts end with this namespace.
root=$root unshare --mount bash -euo pipefail -c '
  mount --rbind /proc "$root/proc"
  mount --rbind /dev "$root/dev"
  exec env --ignore-environment PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root chroot "$root" bash -euo pipefail -c "
    cd /check
    for program in cc gcc g++ clang cmake; do
      ! command -v \$program || { echo \"there is a compiler: \$program\" >&2; exit 1; }
    done
    python3 -m venv --clear venv
    venv/bin/pip install --quiet --no-index --find-links wheels \"bitsnap[report]\"
    venv/bin/bitsnap --version
    ldd venv/bin/bitsnap
    venv/bin/python -W error readme_lines.py README.md
  "
'
echo "=== passed: $(basename "$wheel") on Debian 12 with nothing but Python"
