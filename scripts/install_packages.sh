#!/usr/bin/env bash
# install_packages.sh [build] [test] [check]   all three by default
# Installs Debian packages, as root or through sudo: what building bitsnap needs, its C++ tests, and the deeper checks.
# Does nothing if all are installed. The project has no other list of packages.
set -euo pipefail

build=(
  build-essential cmake ninja-build ccache pkg-config ca-certificates python3 python3-dev python3-venv
  libtbb-dev libzstd-dev libxxhash-dev nlohmann-json3-dev libexpected-dev libfmt-dev libcli11-dev liblz4-dev libbz2-dev
)
test=(git libgtest-dev libgmock-dev librapidcheck-dev)
check=(clang-19 clang-format-19 clang-tidy-19 libclang-rt-19-dev libfuzzer-19-dev llvm-19 libbenchmark-dev)
# For the tests of the aarch64 kernels, which are cross-compiled and run under emulation.
[ "$(uname -m)" != x86_64 ] || check+=(g++-aarch64-linux-gnu googletest qemu-user-static)

packages=()
[ $# -gt 0 ] || set -- build test check
for list in "$@"; do
  case $list in
    build) packages+=("${build[@]}") ;;
    test) packages+=("${test[@]}") ;;
    check) packages+=("${check[@]}") ;;
    *) echo "install_packages: there is no list $list, expected build, test or check" >&2; exit 2 ;;
  esac
done

if ! command -v dpkg-query >/dev/null; then
  echo "install_packages: this is not Debian or Ubuntu; install these by hand: ${packages[*]}" >&2
  exit 1
fi

missing=()
for package in "${packages[@]}"; do
  status=$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null || true)
  [ "$status" = installed ] || missing+=("$package")
done
[ "${#missing[@]}" -gt 0 ] || exit 0

as_root=()
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo >/dev/null || { echo "install_packages: run as root, or install sudo; missing: ${missing[*]}" >&2; exit 1; }
  as_root=(sudo)
fi

echo "installing ${#missing[@]} packages: ${missing[*]}"
"${as_root[@]}" apt-get update -q
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${missing[@]}"
