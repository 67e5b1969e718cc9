# fopng: `make` lists what can be done.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
JOBS   ?= auto

.DEFAULT_GOAL := help
.PHONY: help setup test check unit chaos demo docs package results bench format clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## /{printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP) ## create the virtual environment and install everything (quick when nothing changed)

# torch first: the constraints pin it, so that no later package pulls in another build of it.
$(STAMP): pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Expected Python 3.11 or newer, got %s. Set PYTHON=python3.11 or newer." % sys.version.split()[0])'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt "pip>=25.1"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e . --group dev --group integrations
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt --no-deps avalanche-lib
	@touch $@

test: check unit ## set up, then run every check and the whole test suite

check: $(STAMP) ## lint, format and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

unit: $(STAMP) ## the tests and doctests
	$(BIN)/python -m pytest -n $(JOBS)

chaos: $(STAMP) ## attack for an hour: kills, damaged files, random commands; counts in .chaos, table in docs/reliability.md
	PYTHONPATH=tests $(BIN)/python -m chaos --page $(CHAOS)

demo: $(STAMP) ## set up, then compare eight methods on real digits: a table, and demo/report.html
	$(BIN)/fopng demo

package: $(STAMP) ## build wheel and sdist into dist/, install the wheel in an empty environment and run its demo there
	rm -rf dist .package
	$(BIN)/python -m build --outdir dist .
	$(PYTHON) -m venv .package
	.package/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt "$$(echo dist/*.whl)[demo]"
	cd .package && bin/fopng demo
	@rm -rf .package

docs: $(STAMP) ## build the site into docs/_build/html
	$(BIN)/python -m sphinx -W --keep-going -q -b html docs docs/_build/html
	@echo "docs/_build/html/index.html"

results: $(STAMP) ## write the numbers of the documentation from reproduction/results/
	$(BIN)/python -m reproduction pages

bench: $(STAMP) ## measure; tables on the terminal, JSON under bench/results
	$(BIN)/python bench/core.py
	$(BIN)/python bench/imports.py
	$(BIN)/python bench/step.py
	$(BIN)/python bench/fishers.py
	$(BIN)/python bench/data.py
	$(BIN)/python bench/loop.py
	$(BIN)/python bench/replicas.py cpu
	$(BIN)/python bench/scale.py ranks
	$(BIN)/python bench/memory.py
	$(BIN)/python bench/scale.py ray --waves 2

format: $(STAMP) ## put the code into the house format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean: ## remove the virtual environment and caches
	rm -rf $(VENV) docs/_build docs/api docs/commands.md .mypy_cache .ruff_cache .pytest_cache .hypothesis
