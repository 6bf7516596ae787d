# bitsnap's front door; `make` lists what there is. Every target does the set-up it needs itself.

PYTHON ?= python3
JOBS ?= $(shell nproc)
export CMAKE_BUILD_PARALLEL_LEVEL ?= $(JOBS)
export CTEST_PARALLEL_LEVEL ?= $(JOBS)

venv_python := .venv/bin/python
# Where the set-up and the installed package stand recorded; both go away with the environment.
packages_stamp := .venv/.packages-installed
package_stamp := .venv/.bitsnap-installed
docs_stamp := .venv/.docs-packages-installed
docs_requirements := $(addprefix scripts/,requirements-docs.txt constraints.txt)
requirements := $(addprefix scripts/,requirements-build.txt requirements-test.txt requirements-test-no-deps.txt constraints.txt)
package_sources := $(shell find CMakeLists.txt pyproject.toml README.md LICENSE include src cmake cli interop python \
	-type f -not -path '*/__pycache__/*' -not -path '*/.*' -not -name '*_test.*' -not -name '_bitsnap.pyi' 2>/dev/null)

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup system-packages build demo test quick soak lint format docs bench bench-engine wheel check-wheel clean

help: ## This list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

system-packages:
	@scripts/install_packages.sh

setup: system-packages $(packages_stamp) ## Install the Debian packages and make .venv

build: system-packages $(package_stamp) ## Make .venv/bin/bitsnap and a Python that imports bitsnap

demo: build ## Train a small GPT, kill it, bring it back to the last digit
	@$(venv_python) examples/train_gpt/demo.py

test: build ## Everything that a change has to pass
	@scripts/run_tests.sh all

quick: setup ## The C++ unit tests alone, for the time between two edits
	@scripts/run_tests.sh quick

soak: build ## Kill trainers and agents hundreds of times, and save thousands of times; SOAK="--kills 300 --seed 1"
	@PYTHONPATH=tests $(venv_python) -m soak $(SOAK)

lint: build ## Formatting, clang-tidy, ruff, mypy
	@scripts/lint.sh

format: setup ## Format all sources
	@scripts/format.sh

docs: build $(docs_stamp) ## Write the documentation site to build/site, and check its links
	@NO_MKDOCS_2_WARNING=1 $(venv_python) -m mkdocs build --strict
	@echo "build/site/index.html"

bench: setup ## Measure bitsnap and its baselines on real training states; BENCH=--quick for a first look
	@scripts/run_bench.sh $(BENCH)

bench-engine: build ## Measure what a save holds a training up, beside torch's ways; BENCH="--gigabytes 1"
	@$(venv_python) -m bench.engine_stall $(BENCH)
	@$(venv_python) -m bench.engine_training

wheel: system-packages ## Make the source distribution, and a wheel that needs no other packages, in build/wheels
	@scripts/build_wheel.sh $(PYTHON) build/wheel-venv build/wheels

check-wheel: build wheel ## Install that wheel in clean environments and use it there
	@scripts/check_wheel.sh build/wheels/bitsnap-*.whl $(PYTHON) .venv

clean: ## Remove what was built; .venv and the benchmark's trained states stay
	[ ! -d build ] || find build -mindepth 1 -maxdepth 1 ! -name corpus -exec rm -rf {} +
	rm -f $(package_stamp)

$(packages_stamp): $(requirements) | system-packages
	@scripts/make_venv.sh $(PYTHON) .venv $(requirements)
	@touch $@

$(docs_stamp): $(docs_requirements) | $(packages_stamp)
	@scripts/make_venv.sh $(PYTHON) .venv $(docs_requirements)
	@touch $@

# The build tree is kept, so that only what changed is compiled again; the compiler is the one of the preset `dev`, so that
# either build finds the other's objects in ccache.
$(package_stamp): $(packages_stamp) $(package_sources) | system-packages
	@echo "building the command and the Python package"
	@CC=gcc CXX=g++ $(venv_python) -m pip install --quiet --no-deps --no-build-isolation --force-reinstall \
		--config-settings=build-dir=build/python --config-settings=cmake.define.BITSNAP_WERROR=ON .
	@cp build/python/python/_bitsnap.pyi python/bitsnap/  # for mypy and editors, which read the sources
	@touch $@
