#!/usr/bin/env bash
# Formats every source of the project in place.
set -euo pipefail
cd "$(dirname "$0")/.."

git ls-files -z --cached --others --exclude-standard '*.hpp' '*.cpp' '*.cu' | xargs -0 -r clang-format-19 -i
git ls-files -z --cached --others --exclude-standard '*.py' '*.pyi' | xargs -0 -r .venv/bin/ruff format --quiet
git ls-files -z --cached --others --exclude-standard '*.py' '*.pyi' | xargs -0 -r .venv/bin/ruff check --quiet --fix
