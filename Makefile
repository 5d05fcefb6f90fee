# Verbs of the project. Each installs what it needs first: a fresh clone needs only Python 3.11, make and git.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
TREE   := src tests examples bench docs
export OMP_NUM_THREADS ?= 1
unexport PYTHONDONTWRITEBYTECODE # where it is set, hundreds of processes would each compile the package for themselves
# make train TORCH=https://download.pytorch.org/whl/cpu takes torch from there: the CPU build instead of one with CUDA
TORCH  ?=
PIP    := $(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt $(TORCH:%=--extra-index-url %)
PYTEST := $(BIN)/python -m pytest --dist loadgroup
FAST   := echo "== fast tests (all that is neither slow nor matrix)" && $(PYTEST) -n 2 -m "not slow and not matrix" tests

.PHONY: help setup train test check static fast test-all learn bench bench-pools chaos attack docs format clean

help:            ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 14

setup: $(STAMP)  ## make .venv and install everything into it

$(STAMP): pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing into $(VENV) (a few minutes the first time) …"
	@$(PIP) -e ".[dev]"
	@touch $(STAMP)

train: $(STAMP)  ## train the default preset, with a live view
	@$(BIN)/rookery train cartpole-ppo

# Slow tests wait for other processes a third of their time, so there are four workers for two cores.
# Each part says its name first, so that a log tells where it is. A part that needs what a machine may lack (a browser, EGL) is
# to say so in its line; today none does.
check: $(STAMP)  ## the fast tests, and beside them format, lint, types, import rules
	@( log=$$(mktemp); $(MAKE) -s static > $$log 2>&1; code=$$?; cat $$log; rm -f $$log; exit $$code ) & static=$$!; \
	$(FAST); tests=$$?; wait $$static && exit $$tests

static: $(STAMP) ## format, lint, types, import rules alone
	@echo "== format" && $(BIN)/ruff format --check $(TREE)
	@echo "== lint" && $(BIN)/ruff check $(TREE)
	@echo "== types" && $(BIN)/mypy
	@echo "== import rules" && $(BIN)/lint-imports

fast: $(STAMP)   ## the fast tests alone
	@$(FAST)

test: check     ## everything that CI runs
	@echo "== slow tests (kills, faults, learning, pools, compiled updates, pages and examples)"
	@$(PYTEST) -n 4 -m "slow and not matrix" tests

test-all: check ## the full matrix, with the extras it needs
	@$(PIP) -e ".[dev,envpool,robotics]"
	@echo "== slow tests and the full matrix"
	@$(PYTEST) -n 4 -m "slow or matrix" tests

learn: $(STAMP) ## the learning gates: all seeds of the gold presets (hours)
	$(BIN)/python bench/learn.py

bench: $(STAMP) ## speed, interleaved with other libraries in venvs of their own
	$(BIN)/python bench/speed.py

bench-pools: $(STAMP) ## what processes gain where envs sleep
	$(BIN)/python bench/pools.py

chaos: $(STAMP) ## kill -9 at 50 random moments per algorithm, resume, compare bit for bit; kill workers, remove nodes
	$(BIN)/python bench/chaos.py

attack: $(STAMP) ## hostile configs, run folders, values, envs, sockets and streams; counts of tried and right endings
	$(BIN)/python bench/attack.py

docs: $(STAMP)  ## check links and commands of the documentation, and regenerate its reference pages
	$(BIN)/python docs/build.py

format: $(STAMP) ## let ruff format and mend what it can
	$(BIN)/ruff format $(TREE)
	$(BIN)/ruff check --fix $(TREE)

clean:          ## remove .venv, caches and builds; runs/ is kept
	rm -rf $(VENV) build dist .ruff_cache .mypy_cache .import_linter_cache .hypothesis src/*.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
