# Two commands do everything on a fresh machine: `make demo` and `make test`.
# PYTHON chooses the interpreter (make test PYTHON=python3.12); DEMO the folder of the demo.

PYTHON ?= python3
VENV   ?= .venv
DEMO   ?= demo
SMALL  ?= reproduction
BIN    := $(VENV)/bin
# Test processes at a time, one more than cores, since tests wait for other processes; and how long `make fuzz` goes on.
WORKERS ?= $(shell expr $$(getconf _NPROCESSORS_ONLN) + 1)
SECONDS ?= 600
# A further package index, where the default one has no build of torch for this machine (docs/install.md).
TORCH_INDEX ?=
PIP    := $(BIN)/pip install --quiet --constraint constraints.txt $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX))

# Tests that `make test` leaves to `make test-all`: those that take ten seconds or more.
TESTS  ?= not slow
# Files or folders of tests; all if it is empty.
PATHS  ?=

.PHONY: demo test test-all lint types unit fuzz reproduce-small docs audit bench clean help
.DEFAULT_GOAL := help

help:  ## show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 18

demo: $(VENV)/.core  ## the whole tour on embedded defaults; writes $(DEMO)/index.html
	$(BIN)/ntrm demo --out $(DEMO)

# mypy is one process, and tests wait for files and for each other at times: side by side both are done sooner.
test: lint  ## ruff, mypy, doctests, and every test but the slow ones
	@$(MAKE) --no-print-directory --jobs=2 types unit

test-all: lint  ## the whole check, with the slow tests: kills, several processes, Ray, the browser, commands of the docs
	@$(MAKE) --no-print-directory --jobs=2 types unit TESTS=

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.dev
	$(BIN)/mypy

# Tests mean the same under every locale.
unit: export PYTHONUTF8 = 1
unit: export PYTHONIOENCODING =
# As `ntrm train` sets it for itself: on ARM, torch would give memory back after every step of every small network.
unit: export MIMALLOC_PURGE_DELAY = 1000

# pytest keeps what it makes of the tests as bytecode: to make it anew takes each of its processes ten seconds.
unit: $(VENV)/.dev
	PYTHONDONTWRITEBYTECODE= PYTHONHASHSEED=0 $(BIN)/pytest -n $(WORKERS) --dist worksteal -m "$(TESTS)" $(PATHS)

fuzz: $(VENV)/.dev  ## the tests with random inputs, drawn anew for $(SECONDS) seconds
	PYTHONDONTWRITEBYTECODE= $(BIN)/python -m tests.fuzz --seconds $(SECONDS) --workers $(WORKERS)

# The phantom's seed gives small sections, and a test part with all three cancers. After so few steps no network is sure
# of anything: a lower τ lets the relation module find regions all the same.
reproduce-small: $(VENV)/.dev  ## the paper's tables and claims in small: writes $(SMALL)/index.html
	$(BIN)/ntrm phantom build/small-phantom --sections 16 --seed 24 --resolutions 10x,5x
	NTRM_CACHE=$(CURDIR)/build/small-cache $(BIN)/ntrm reproduce --data build/small-phantom --out $(SMALL) \
	  --seeds 0 --option width=0.125 --option dim=32 --option tau=0.2 --device cpu --set steps=48 \
	  --set validate_every=48 --set batch=4 --set window=128 --set overlap=0 --set learning_rate=5e-3 --set workers=0

docs: $(VENV)/.docs  ## the pages as a website with search and an API reference: writes build/site/index.html
	$(BIN)/python docs/prepare_site.py build/pages
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

audit: $(VENV)/.audit  ## known vulnerabilities, SBOM (sbom.json), licences (licences.md)
	$(BIN)/cyclonedx-py environment --output-format JSON --output-file sbom.json $(BIN)/python
	$(BIN)/pip-licenses --format=markdown --with-urls --output-file=licences.md
	$(BIN)/pip-audit --requirement constraints.txt --disable-pip --no-deps || \
	  echo "pip-audit found something or could not reach its database: read the lines above"

bench: $(VENV)/.dev  ## speed and memory, each figure a ratio measured in one run
	$(BIN)/python bench/tile_throughput.py
	$(BIN)/python bench/phantom_realism.py
	$(BIN)/python bench/network_speed.py --parts inference --batches 4

clean:  ## remove the environment and what the commands above wrote
	rm -rf $(VENV) $(DEMO) $(SMALL) build/small-phantom build/small-cache build/pages build/site sbom.json licences.md
	rm -rf .mypy_cache .ruff_cache .pytest_cache .hypothesis

$(VENV)/.python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  found=$$($(PYTHON) --version 2>/dev/null || echo "not there"); \
	  echo "NTRM needs Python 3.11 or newer, and $(PYTHON) is $$found. Try: make $(MAKECMDGOALS) PYTHON=python3.12"; exit 2; }
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.core: $(VENV)/.python pyproject.toml constraints.txt
	$(PIP) --editable '.[serve]'
	@touch $@

$(VENV)/.dev: $(VENV)/.core
	$(PIP) --editable '.[dev,export,mit,serve,cluster,cloud]'
	@touch $@

$(VENV)/.docs: $(VENV)/.core
	$(PIP) --editable '.[docs]'
	@touch $@

$(VENV)/.audit: $(VENV)/.dev
	$(PIP) --editable '.[audit]'
	@touch $@
