# All work goes through .venv, which the first target makes. `make help` lists the rest.
#
#   make demo                                    the main job, from nothing
#   make test                                    every check
#   make demo PIP_ARGS="--extra-index-url …"     hand options to pip, such as the index of PyTorch's CPU wheels

PYTHON   ?= python3.11
PIP_ARGS ?=
BENCH    ?=

VENV  := .venv
BIN   := $(VENV)/bin
STAMP := $(VENV)/.stamp
PIN   := --constraint constraints.txt
# Files of tests on two processes: what a file's tests share, as ranks that were started for all of them, is made once.
SHARED := --numprocesses 2 --dist loadfile
# ruff does not follow links, and only there does it see the names that the code is imported by
LINKS := adaptpipe/solver/ adaptpipe/executor/ adaptpipe/models/

.DEFAULT_GOAL := help
.PHONY: help env demo test checks lint format types imports warm unit doctest wheel bench clean

help:  ## list the targets
	@grep -E '^[a-z]+:.*##' Makefile | sed -E 's/:[^#]*## /\t/' | expand -t 10

env: $(STAMP)  ## make .venv: AdaptPipe (editable) with torch and transformers, and the tools of the checks

$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet $(PIP_ARGS) $(PIN) --upgrade pip   # dependency groups need pip 25.1
	$(BIN)/python -m pip install --quiet $(PIP_ARGS) $(PIN) --editable '.[hf]' --group lint --group test
	touch $@

demo: env  ## profile, solve and train a small GPT on real text, and compare with the prediction
	$(BIN)/adaptpipe run examples/gpt-text.toml

test: env  ## every check: lint, types, import floors, wheel, tests and doctests
	$(MAKE) --jobs=2 --output-sync checks
	$(BIN)/python -m pytest $(SHARED)

checks: wheel types imports lint warm  ## all but the tests; the wheel takes longest, so it comes first

lint: env  ## ruff: rules and format
	$(BIN)/ruff check . $(LINKS)
	$(BIN)/ruff format --check .

format: env  ## let ruff repair what it can
	$(BIN)/ruff check --fix . $(LINKS)
	$(BIN)/ruff format .

types: env  ## mypy, strict
	$(BIN)/mypy

imports: env  ## import floors: commands -> executor | models -> solver
	$(BIN)/lint-imports

warm: env  ## compile the searches
	$(BIN)/python -c "from adaptpipe.solver.warming import warm_up; warm_up()"

unit: env  ## the tests alone
	$(BIN)/python -m pytest tests

doctest: env  ## the examples in the docstrings alone
	$(BIN)/python -m pytest adaptpipe

wheel: env  ## build the wheel, install it without torch into a fresh environment, and use it there
	rm -rf build dist
	PIP_CONSTRAINT=$(CURDIR)/constraints.txt $(BIN)/python -m build --quiet --outdir dist .
	$(BIN)/python -m venv build/fresh
	build/fresh/bin/python -m pip install --quiet $(PIP_ARGS) $(PIN) dist/*.whl
	cd build/fresh && bin/python -P $(CURDIR)/tests/wheel_smoke.py $(CURDIR)

bench: env  ## the solver's benchmark: tables and chart in benchmarks/results; BENCH="--set v1x" solves a part
	$(BIN)/python -m benchmarks.solve $(BENCH)

clean:  ## remove what make made, .venv too
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
