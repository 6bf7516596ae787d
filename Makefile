# bitsnap's front door; `make` lists what there is. Every target does the set-up it needs itself.

PYTHON ?= python3
JOBS ?= $(shell nproc)
export CMAKE_BUILD_PARALLEL_LEVEL ?= $(JOBS)
export CTEST_PARALLEL_LEVEL ?= $(JOBS)

venv_python := .venv/bin/python
# What is installed in the environment; goes away with it. The packages of the demo and of the tests come on top of those
# that building needs.
build_stamp := .venv/.build-packages-installed
demo_stamp := .venv/.demo-packages-installed
test_stamp := .venv/.test-packages-installed
docs_stamp := .venv/.docs-packages-installed
package_stamp := .venv/.bitsnap-installed
constraints := scripts/constraints.txt
demo_requirements := scripts/requirements-demo.txt $(constraints)
test_requirements := scripts/requirements-demo.txt scripts/requirements-test.txt scripts/requirements-test-no-deps.txt $(constraints)
docs_requirements := scripts/requirements-docs.txt $(constraints)
package_sources := $(shell find CMakeLists.txt pyproject.toml README.md LICENSE include src cmake cli interop python \
	-type f -not -path '*/__pycache__/*' -not -path '*/.*' -not -name '*_test.*' -not -name '_bitsnap.pyi' 2>/dev/null)

# What `make check` runs of scripts/run_tests.sh.
STAGES ?= check

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup debian-packages debian-build-packages debian-test-packages demo-packages test-packages build demo test \
	check quick soak lint format docs bench bench-engine wheel wheels check-wheel check-wheels clean

help: ## This list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

debian-build-packages:
	@scripts/install_packages.sh build

debian-test-packages:
	@scripts/install_packages.sh build test

debian-packages:
	@scripts/install_packages.sh

demo-packages: $(demo_stamp)

test-packages: $(test_stamp)

setup: debian-packages $(test_stamp) ## Install all Debian packages, and .venv with the packages of the tests

build: $(package_stamp) ## Make .venv/bin/bitsnap and a Python that imports bitsnap

# Packages are downloaded and unpacked while the compiler works.
demo: $(build_stamp) ## Train a small GPT, kill it, bring it back to the last digit
	@$(MAKE) --no-print-directory --jobs 2 build demo-packages
	@$(venv_python) examples/train_gpt/demo.py

test: debian-test-packages $(build_stamp) ## The C++ tests and those of the Python package: what a change has to pass first
	@$(MAKE) --no-print-directory --jobs 2 build test-packages
	@scripts/run_tests.sh test

check: debian-packages build test-packages ## The deeper checks: slow tests, sanitizers, fuzzing, aarch64, the wheel, linters
	@scripts/run_tests.sh $(STAGES)
	@$(MAKE) --no-print-directory check-wheel lint

quick: debian-test-packages ## The C++ unit tests alone, for the time between two edits
	@scripts/run_tests.sh quick

soak: build test-packages ## Kill trainers and agents hundreds of times, and save thousands of times; SOAK="--kills 300 --seed 1"
	@PYTHONPATH=tests $(venv_python) -m soak $(SOAK)

lint: debian-packages build test-packages ## Formatting, clang-tidy, ruff, mypy
	@scripts/lint.sh

format: debian-packages test-packages ## Format all sources
	@scripts/format.sh

docs: build $(docs_stamp) ## Write the documentation site to build/site, and check its links
	@NO_MKDOCS_2_WARNING=1 $(venv_python) -m mkdocs build --strict
	@echo "build/site/index.html"

bench: debian-packages test-packages ## Measure bitsnap and its baselines on real training states; BENCH=--quick for a first look
	@scripts/run_bench.sh $(BENCH)

bench-engine: build test-packages ## Measure what a save holds a training up, beside torch's ways; BENCH="--gigabytes 1"
	@$(venv_python) -m bench.engine_stall $(BENCH)
	@$(venv_python) -m bench.engine_training

wheel: debian-build-packages ## Make the source distribution, and a wheel that needs no other packages, in build/wheels
	@scripts/build_wheel.sh build/wheels $(PYTHON)

wheels: debian-build-packages ## The wheels for CPython 3.11 and for 3.12 and later, where these are installed
	@scripts/build_wheel.sh build/wheels all

check-wheels: test-packages wheels ## Install these in clean environments of each CPython that is installed
	@for wheel in build/wheels/bitsnap-*.whl; do for version in 3.11 3.12 3.13 3.14; do \
	  case "$$wheel $$version" in *cp311*3.11|*abi3*3.1[2-9]) ;; *) continue ;; esac; \
	  python$$version --version 2>/dev/null || { echo "there is no python$$version: left out"; continue; }; \
	  scripts/check_wheel.sh "$$wheel" python$$version || exit 1; done; done

check-wheel: build test-packages wheel ## Install that wheel in clean environments and use it there
	@scripts/check_wheel.sh build/wheels/bitsnap-*.whl $(PYTHON) .venv

clean: ## Remove what was built; .venv and the benchmark's trained states stay
	[ ! -d build ] || find build -mindepth 1 -maxdepth 1 ! -name corpus -exec rm -rf {} +
	rm -f $(package_stamp)

$(build_stamp): scripts/requirements-build.txt $(constraints) | debian-build-packages
	@scripts/make_venv.sh $(PYTHON) .venv $^
	@touch $@

$(demo_stamp): $(demo_requirements) | $(build_stamp)
	@scripts/make_venv.sh $(PYTHON) .venv $^
	@touch $@

$(test_stamp): $(test_requirements) | $(build_stamp)
	@scripts/make_venv.sh $(PYTHON) .venv $^
	@touch $@

$(docs_stamp): $(docs_requirements) | $(test_stamp)
	@scripts/make_venv.sh $(PYTHON) .venv $^
	@touch $@

# The build tree is kept, so that only what changed is compiled again; the compiler is the one of the preset `dev`, so that
# either build finds the other's objects in ccache.
$(package_stamp): $(build_stamp) $(package_sources) | debian-build-packages
	@echo "building the command and the Python package"
	@CC=gcc CXX=g++ $(venv_python) -m pip install --quiet --no-deps --no-build-isolation --force-reinstall \
		--config-settings=build-dir=build/python --config-settings=cmake.define.BITSNAP_WERROR=ON .
	@cp build/python/python/_bitsnap.pyi python/bitsnap/  # for mypy and editors, which read the sources
	@touch $@
