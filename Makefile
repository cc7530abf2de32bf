# What a contributor runs. Needs make, Python 3.11 or newer, and (for the local control plane) Go; brings the rest
# into the checkout (.venv, and .tools for `make lock`) and ~/.cache/topogate, and as root on Debian some packages.

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.SHELLFLAGS := -euc
MAKEFLAGS += --no-print-directory

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
UV_VERSION := 0.13.8

# The first of these that runs and is new enough; `make PYTHON=/path/to/python3.12` says otherwise.
PYTHON ?= $(shell for candidate in python3.11 python3 python3.12 python3.13 python3.14; do \
	$$candidate -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && echo $$candidate && break; done)

.PHONY: help
help: ## Tell what there is
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-13s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

.PHONY: setup
setup: $(STAMP) browser builder ## Bring everything that the rest needs (15 to 40 minutes once: a control plane and the controllers of other kinds)
	@$(BIN)/python -m local programs >/dev/null
	@$(BIN)/python -m local controllers --build-only >/dev/null
	@$(BIN)/python -m local.helm >/dev/null
	@! $(HAS_BUILDER) || test "$$(id -u)" != 0 || $(BIN)/python -m hack.image --bases-only || echo "the tests of the image will fail" >&2

# Chromium is the system's: no package of an index brings one that fits. Without it its tests are skipped, and say so.
.PHONY: browser
browser:
	@if command -v chromium >/dev/null && command -v chromedriver >/dev/null; then :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		echo "installing chromium and chromium-driver with apt-get, for the tests of topogate map" >&2; \
		export DEBIAN_FRONTEND=noninteractive; \
		{ apt-get -qq -o Acquire::Retries=3 update && \
		  apt-get -qq -y -o Acquire::Retries=3 -o DPkg::Lock::Timeout=300 install chromium chromium-driver; } >/dev/null || \
			echo "apt-get failed: the tests of topogate map will be skipped" >&2; \
	else echo "no chromium and chromedriver: the tests of topogate map will be skipped; install them, on Debian the packages chromium and chromium-driver" >&2; fi

# What builds the image without a container engine; the image's tests are skipped without it, and say so.
HAS_BUILDER := { command -v buildah && command -v mmdebstrap; } >/dev/null
.PHONY: builder
builder:
	@if $(HAS_BUILDER); then :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		echo "installing buildah and mmdebstrap with apt-get, for the tests of the image" >&2; \
		export DEBIAN_FRONTEND=noninteractive; \
		{ apt-get -qq -o Acquire::Retries=3 update && \
		  apt-get -qq -y --no-install-recommends -o Acquire::Retries=3 -o DPkg::Lock::Timeout=300 install buildah mmdebstrap; } >/dev/null || \
			echo "apt-get failed: the tests of the image will be skipped" >&2; \
	else echo "no buildah and mmdebstrap: the tests of the image will be skipped; install them, on Debian the packages of these names" >&2; fi

$(STAMP): requirements-dev.lock pyproject.toml
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed, and no python3.11 or python3 on the PATH is." >&2; exit 1; }
	@echo "installing into $(VENV) with $(PYTHON)" >&2
	@$(PYTHON) -m venv $(VENV) || { echo "$(PYTHON) -m venv failed: on Debian and Ubuntu, install python3-venv." >&2; exit 1; }
	@$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements-dev.lock
	@$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --no-index --editable .
	@touch $@

.PHONY: demo
demo: $(STAMP) ## Show gangs on a real control plane with 32 simulated GPU hosts (KEEP=1 leaves it running)
	@$(BIN)/python -m local.demo

# Tests side by side, each worker with a control plane of its own (up to 3 GB). Most of the time they wait: more
# workers than cores.
WORKERS ?= 4

.PHONY: test
test: setup check ## Everything that CI runs: check, then all tests (WORKERS=4; ARGS="..." for pytest)
	@$(BIN)/pytest --numprocesses=$(WORKERS) $(ARGS)

.PHONY: test-matrix
test-matrix: $(STAMP) ## The core of the cluster tests on each version of Kubernetes (VERSIONS="1.30 1.36"; ten minutes each, and the build of a version once)
	@$(BIN)/python -m hack.matrix --workers $(WORKERS) $(VERSIONS)

.PHONY: test-fast
test-fast: $(STAMP) ## The tests without a control plane: unit, property, contract (2 minutes; WORKERS=4, ARGS)
	@$(BIN)/pytest --numprocesses=$(WORKERS) tests/unit tests/property tests/contract $(ARGS)

.PHONY: test-random
test-random: $(STAMP) ## Properties with new random examples (4 minutes; ARGS=--hypothesis-seed=N: those of one run again)
	@$(BIN)/pytest --numprocesses=$(WORKERS) --hypothesis-profile=random tests/property tests/unit $(ARGS)

# As many processes as cores. A finding is written to build/fuzz, and `python -m tests.fuzz --replay FILE` checks it.
COUNT ?= 1000000

.PHONY: fuzz
fuzz: $(STAMP) ## Feed random and changed inputs to whatever reads what others write (an hour on two cores; COUNT=1000000, ARGS="--seed N")
	@$(BIN)/python -m tests.fuzz --count $(COUNT) $(ARGS)

.PHONY: test-faults
test-faults: $(STAMP) ## All faults under load, upgrades from the last releases and back; prints failed calls (15 minutes; ARGS)
	@$(BIN)/pytest --scenarios=all --capture=no tests/cluster/gangs/test_faults_load.py tests/cluster/test_upgrades.py $(ARGS)

# 10,000 lives on the simulated API (seven kinds, tests/support/lives.py), then 200 schedules on the real one.
.PHONY: test-nightly
test-nightly: $(STAMP) ## 10,000 random lives of gangs, and 200 random schedules on a real control plane (2 hours; WORKERS=4, SCHEDULES=200)
	@$(BIN)/pytest --numprocesses=$(WORKERS) --dist=worksteal --timeout=0 --hypothesis-profile=nightly \
		tests/property/test_gang_life.py tests/property/test_autoscaling_life.py tests/property/test_preemption_life.py \
		tests/property/test_lagging_watches_life.py
	@$(BIN)/pytest --capture=no --schedules=$(SCHEDULES) --first-seed=$${SEED:-$$(date +%s)} tests/cluster/gangs/test_faults_chaos.py $(ARGS)

SCHEDULES ?= 200

.PHONY: check
check: $(STAMP) ## Lint, format, types, import contracts, the rooms of the code
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/pytest --quiet tests/unit/repository/test_house.py

.PHONY: fmt
fmt: $(STAMP) ## Format, and repair what the linter can repair
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

.PHONY: bench bench-planner bench-reading bench-review bench-serving bench-flood bench-mutation bench-cluster bench-kinds bench-placement bench-placement-preemption bench-bystanders bench-fairness bench-decisions bench-shapes bench-preemption bench-pod-rules bench-map bench-growth bench-scale bench-load
bench: bench-planner bench-decisions bench-shapes bench-preemption bench-pod-rules bench-reading bench-review bench-serving bench-flood bench-mutation bench-bystanders bench-cluster bench-kinds bench-placement bench-placement-preemption bench-fairness bench-map bench-growth bench-scale bench-load ## Measure (docs/benchmarks.md; ARGS="..." for options, ARGS=--help tells them)

bench-planner: $(STAMP) ## Measure decisions of the planner, cold and warm, on 1,000 to 100,000 hosts (10 s)
	@$(BIN)/python -m bench.planner $(ARGS)

bench-pod-rules: $(STAMP) ## Measure what pod affinity and topology spread add to a decision (20 s)
	@$(BIN)/python -m bench.pod_rules $(ARGS)

bench-decisions: $(STAMP) ## Measure decisions for gangs with a profile or a separation beside plain ones (1 minute)
	@$(BIN)/python -m bench.decisions $(ARGS)

bench-shapes: $(STAMP) ## Measure plans of gangs with pods of two or three shapes beside equal ones (20 s)
	@$(BIN)/python -m bench.shapes $(ARGS)

bench-preemption: $(STAMP) ## Measure the search for victims among 10 to 2,560 gangs (3 minutes)
	@$(BIN)/python -m bench.preemption $(ARGS)

bench-map: $(STAMP) ## Measure the data and the page of topogate map on 10,240 hosts (3 minutes)
	@$(BIN)/python -m bench.map $(ARGS)

bench-growth: $(STAMP) ## Measure how the leader's time and memory grow up to 102,400 hosts and 1,000,000 pods (3 minutes)
	@$(BIN)/python -m bench.growth $(ARGS)

bench-scale: $(STAMP) ## Measure start, memory and reconnection of a replica on 10,240 nodes and 100,000 pods (2 minutes)
	@$(BIN)/python -m bench.scale $(ARGS)

bench-load: $(STAMP) ## Measure reviews by the clock while the caches of 10,240 nodes and 100,000 pods receive events (5 minutes)
	@$(BIN)/python -m bench.scale.load $(ARGS)

bench-placement: $(STAMP) ## Simulate streams of gangs under our rules and those of others (20 minutes; ARGS=--quick: one)
	@$(BIN)/python -m bench.placement $(ARGS)

bench-placement-preemption: $(STAMP) ## Simulate streams with preemption, and with moves, under our rules and those of others (40 minutes; ARGS=--quick: one)
	@$(BIN)/python -m bench.placement.preemption $(ARGS)

bench-fairness: $(STAMP) ## Simulate streams of gangs by age and in fair order among namespaces, and measure the order (20 s)
	@$(BIN)/python -m bench.fairness $(ARGS)

bench-reading: $(STAMP) ## Measure reading pods and YAML beside the client's models and PyYAML (20 s)
	@$(BIN)/python -m bench.reading $(ARGS)

bench-review: $(STAMP) ## Measure one review of a pod beside json.loads (20 s)
	@$(BIN)/python -m bench.review $(ARGS)

bench-serving: $(STAMP) ## Measure how many reviews a replica answers over TLS for a second of its CPU (40 s)
	@$(BIN)/python -m bench.serving $(ARGS)

bench-flood: $(STAMP) ## Measure how long reviews of a namespace wait beside the flood of another one (50 s)
	@$(BIN)/python -m bench.flood $(ARGS)

bench-mutation: $(STAMP) ## Measure reviews of GPU requests with 1, 8 and 50 containers beside json.loads (1 minute)
	@$(BIN)/python -m bench.mutation $(ARGS)

bench-cluster: $(STAMP) ## Measure gangs of 4 to 512 pods, 100 at once, and a churn, beside the same Jobs without us (half an hour)
	@$(BIN)/python -m bench.cluster $(ARGS)

bench-bystanders: $(STAMP) ## Measure what objects that ask for nothing cost the API server, with the service and without (2 minutes)
	@$(BIN)/python -m bench.bystanders $(ARGS)

bench-kinds: $(STAMP) ## Count our writes for gangs of 64 and 128 pods of every kind, with its real controller (20 minutes)
	@$(BIN)/python -m bench.kinds $(ARGS)

.PHONY: plugin
plugin: $(STAMP) ## Build the kubectl plugin and its krew manifest in dist/plugin (URL=https://...: where it will be; PLATFORMS)
	@$(BIN)/python -m hack.plugin --url "$(URL)" $(foreach platform,$(PLATFORMS),--platform $(platform))

.PHONY: test-plugin
test-plugin: $(STAMP) ## Build the plugin for this machine, install it with the real krew and run it (2 minutes)
	@$(BIN)/pytest --build-plugin tests/plugin $(ARGS)

.PHONY: image
image: $(STAMP) ## Build the image on bases from Debian packages, as dist/image/*.tar (root; buildah, mmdebstrap; 2 minutes, 5 more once)
	@$(BIN)/python -m hack.image $(ARGS)

.PHONY: release
release: $(STAMP) ## Write the files of a release to dist/release (VERSION=1.4.0; IMAGE=registry.example.com/topogate; ARGS=--draft: try it)
	@test -n "$(VERSION)" || { echo "make release VERSION=1.4.0: the version of pyproject.toml" >&2; exit 2; }
	@$(BIN)/python -m hack.release $(if $(IMAGE),--image "$(IMAGE)") $(ARGS) -- "$(VERSION)"

.PHONY: lock
lock: .tools/bin/uv ## Write the requirements locks anew from pyproject.toml (UPGRADE=1: newest versions)
	@$(PYTHON) -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"], "editables", sep="\n")' \
		| $(COMPILE) - --output-file requirements-build.lock
	@$(COMPILE) pyproject.toml --output-file requirements.lock
	@$(COMPILE) pyproject.toml --group dev requirements-build.lock --constraint requirements.lock --output-file requirements-dev.lock

# Universal: one lock for every platform and Python that pyproject.toml allows.
COMPILE = .tools/bin/uv --quiet pip compile --universal --python-version 3.11 --generate-hashes --no-header \
	--no-emit-index-url --no-emit-find-links --no-annotate $(if $(UPGRADE),--upgrade)

.tools/bin/uv: Makefile
	@$(PYTHON) -m venv .tools
	@.tools/bin/pip install --quiet --disable-pip-version-check uv==$(UV_VERSION)
	@touch $@

.PHONY: clean
clean: ## Remove what the other targets made here (the programs in your cache directory stay)
	@rm -rf $(VENV) .tools .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache dist build
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
