# Every target is one line that calls a tool; `setup` alone has logic. `make` lists them.
.DEFAULT_GOAL := help
.PHONY: help setup format lint types test test-slow test-browser test-gpu gpu-check check-all bench verify claims kernels baseline check report clean

BIN := .venv/bin
STAMP := .venv/.stamp
ARGS ?=
# Tests may share the cores, since none asserts an absolute time.
PARALLEL := --numprocesses=auto --maxprocesses=8 --dist=worksteal --benchmark-disable
# Where gpu-check leaves what it found.
OUT ?= reports/gpu-check
# Candidates for the virtual environment, tried in this order; PYTHON=/path/to/python names one.
PYTHON ?= python3.13 python3.12 python3.11 python3

help: ## Show these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP) ## Make .venv and install into it (TORCH_INDEX_URL=... for another torch build)

format: $(STAMP) ## Rewrite the code in the project's style
	$(BIN)/ruff check --fix-only --quiet . && $(BIN)/ruff format .

lint: $(STAMP) ## Check style, spelling and who may import whom
	$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/lint-imports && $(BIN)/codespell && \
	$(BIN)/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml && \
	$(BIN)/zizmor --offline --quiet --no-progress .github

types: $(STAMP) ## Check the types
	$(BIN)/mypy

test: $(STAMP) ## Run the tests that need no GPU, but for the slow ones
	$(BIN)/pytest $(PARALLEL) $(ARGS)

test-slow: $(STAMP) ## Run the slow tests
	$(BIN)/pytest -m 'slow and not gpu and not browser' $(ARGS)

test-browser: $(STAMP) ## Open reports in chromium, which has to be installed
	$(BIN)/pytest -m browser $(ARGS)

test-gpu: $(STAMP) ## Run the tests that need a GPU
	$(BIN)/pytest -m gpu $(ARGS)

gpu-check: ## All that a borrowed GPU is to show, inside six minutes (OUT=folder WHEELS=folder); docs/gpu.md
	scripts/gpu_check.sh $(OUT)

check-all: lint types test test-slow test-browser ## Everything that has to pass before a change lands

bench: $(STAMP) ## Measure this machine and write a report (ARGS='--sweep smoke' for a quick look)
	$(BIN)/attention-bench run $(ARGS)

verify: $(STAMP) ## Check every implementation against the float64 reference, without timing
	$(BIN)/attention-bench verify $(ARGS)

claims: $(STAMP) ## Confirm or refute the theory on this machine, in about ten minutes (ARGS=--quick: two)
	$(BIN)/attention-bench claims $(ARGS)

kernels: $(STAMP) ## Compile the Triton kernels for GPUs that are not here; ARGS=--check compares with kernels.lock.json
	$(BIN)/attention-bench kernels $(ARGS)

baseline: $(STAMP) ## Record what later states of the code are held against (results/baselines)
	$(BIN)/attention-bench baseline $(ARGS)

check: $(STAMP) ## Hold this state against the baseline; fails if it is worse (ARGS=--exact: no times)
	$(BIN)/attention-bench check $(ARGS)

report: $(STAMP) ## Build the report of the latest run again
	$(BIN)/attention-bench report latest $(ARGS)

clean: ## Remove .venv and caches; results and reports stay
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis .benchmarks

$(STAMP): pyproject.toml constraints.txt Makefile
	@python=; for candidate in $(PYTHON); do \
	  if "$$candidate" -c 'import sys, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then python=$$candidate; break; fi; \
	done; \
	if [ -z "$$python" ]; then \
	  found=$$(for candidate in $(PYTHON); do "$$candidate" --version 2>/dev/null; done | tail -n 1 | cut -d" " -f2); \
	  echo "error: Python must be at least 3.11 (with the venv module), got $${found:-none}; install one or name it: make setup PYTHON=/path/to/python3.11" >&2; exit 2; \
	fi; \
	echo "Setting up .venv with $$("$$python" --version): about a minute, more where torch has to be downloaded" >&2; \
	$(BIN)/python -c '' 2>/dev/null || "$$python" -m venv --clear .venv || exit 1; \
	if [ -n "$(TORCH_INDEX_URL)" ]; then \
	  $(BIN)/python -m pip install -qq --index-url "$(TORCH_INDEX_URL)" $$(grep '^torch==' constraints.txt) || exit 1; \
	fi; \
	$(BIN)/python -m pip install -qq -c constraints.txt -e '.[test]' && touch $@
