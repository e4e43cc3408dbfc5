# The commands of this repository. `make demo` and `make test` need Python 3.11+, make and pip.

VENV := .venv
BIN := $(VENV)/bin
# The first interpreter that is new enough; name another with `make PYTHON=...`.
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
# SYSTEM_TORCH=1: use the torch that this machine has (a GPU machine's own build).
ifdef SYSTEM_TORCH
READY := $(VENV)/.ready-system-torch
VENV_FLAGS := --system-site-packages
CONSTRAINTS := /dev/null
else
READY := $(VENV)/.ready
CONSTRAINTS := constraints.txt
endif
PYTEST := $(BIN)/python -m pytest

.PHONY: help setup demo test lint types unit test-beds test-slurm slurm-sites slurm-ways test-long test-gpu figures clean

help:
	@echo "make demo       set up, then train one model over two sites"
	@echo "make test       set up, then run every check (no root, under 10 minutes)"
	@echo "make test-beds  checks that need root: full disks, a browser, a shaped WAN, real Slurm clusters"
	@echo "make test-slurm of these, the Slurm clusters"
	@echo "make test-long  the long randomised runs"
	@echo "make test-gpu   checks and MFU that need an accelerator; says so where there is none"
	@echo "make figures    measure what docs/figures.md says"
	@echo "make setup      only set up $(VENV); SYSTEM_TORCH=1 uses the torch of this machine"
	@echo "make clean      remove $(VENV) and caches"

setup: $(READY)

$(READY): pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "gridloom needs Python 3.11 or newer: none was found"; exit 2; }
ifdef SYSTEM_TORCH
	@$(PYTHON) -c 'import torch' 2>/dev/null || \
		{ echo "SYSTEM_TORCH=1: $(PYTHON) has no torch; name another with PYTHON=..."; exit 2; }
endif
	@echo "setting up $(VENV) with $$($(PYTHON) --version); this takes about a minute"
	@$(PYTHON) -m venv --clear $(VENV_FLAGS) $(VENV)
	@# What is never loaded need not be compiled
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile \
		--constraint $(CONSTRAINTS) --editable '.[train,dev]'
	@touch $@

demo: setup
	@$(BIN)/gridloom run -y examples/gpt-two-sites.yaml

# The types are checked beside the tests, which now and then wait for something
test: setup lint
	@$(MAKE) --no-print-directory --jobs 2 types unit

lint: setup
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --check --quiet .
	@$(BIN)/lint-imports --no-cache | tail -n 3

types: setup
	@$(BIN)/mypy

# Threads of one process wait for each other in loops that keep other processes from working
unit test-long: export OMP_NUM_THREADS := 1
# What is compiled, and rewritten for its assertions, once need not be again in each process
unit test-long: export PYTHONDONTWRITEBYTECODE :=

unit: setup
	@rm -f .coverage .coverage.*
	@$(BIN)/coverage run -m pytest -q --numprocesses 2 --dist loadscope --no-loadscope-reorder -m "not bed"
	@# What a killed process had half written of its coverage is of no use
	@$(BIN)/coverage combine --quiet 2>/dev/null; rm -f .coverage.*
	@$(BIN)/coverage report
	@$(BIN)/coverage report --include 'src/gridloom/core/*,src/gridloom/model/*' --fail-under 100

test-beds: setup
	@$(PYTEST) -q -m bed tests/beds

# Most of the time they wait for Slurm: two lots at a time, in which no two want the same ports
test-slurm: setup
	@$(MAKE) --no-print-directory --jobs 2 slurm-sites slurm-ways

slurm-sites:
	@$(PYTEST) -q -m bed $(addprefix tests/beds/test_,slurm.py slurm_many.py sbatch.py)

slurm-ways:
	@$(PYTEST) -q -m bed $(addprefix tests/beds/test_,site_check.py slurm_ssh.py slurm_rest.py slurm_contract.py slurm_rest_contract.py)

test-long: setup
	@$(PYTEST) -q --numprocesses 2 --dist worksteal --hypothesis-profile long --timeout 3000 tests/property tests/world

test-gpu: setup
	@$(BIN)/python -m bench.gpu

figures: setup
	@for figure in bench/overhead.py bench/startup.py bench/planner.py; do echo "$$figure"; $(BIN)/python $$figure; done

clean:
	rm -rf $(VENV) .venv-peers .venv-frameworks .coverage .coverage.* .mypy_cache .ruff_cache .pytest_cache .hypothesis
