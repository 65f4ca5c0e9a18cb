# Two commands: `make demo` and `make test`. Both make the environment first, from PyPI alone.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

# One thread for each process: the demo and the tests run several processes side by side.
export OMP_NUM_THREADS ?= 1
# Python keeps the bytecode of what is imported, even where the surroundings say not to. pip makes none: that would be of
# thousands of files that nobody imports, and take as long as the rest of the installation.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: demo demo-serve demo-flower docs test test-all check style types platforms tests tests-all tests-long format clean help

help:           ## show this
	@grep -E '^[a-z-]+: .*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/'

# The installation keeps one core busy. Beside it, the bytecode of this repository is made, once for all processes of the tests.
$(READY): pyproject.toml packages/turnout-serve/pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m compileall -q src packages tests & $(INSTALL) $(WITH) && wait
	touch $@

# uv installs in half the processor time of pip, where it is there. A newer pip first: that of Python 3.11 takes twice as long.
WITH = --constraint constraints.txt --editable '.[dev]' --editable './packages/turnout-serve[store,postgresql]'
ifneq ($(shell command -v uv 2> /dev/null),)
INSTALL = uv pip install --quiet --python $(BIN)/python
else
INSTALL = $(BIN)/python -m pip install --quiet --no-compile 'pip>=25' && $(BIN)/python -m pip install --quiet --no-compile
endif

demo: $(READY)  ## FedAU against its baselines on scanned digits: a table, and a report with pictures
	$(BIN)/turnout compare --config examples/demo.toml

demo-serve: $(READY)  ## a server and a swarm of clients over HTTP, the server killed once, beside the simulation
	$(BIN)/python examples/served.py

demo-flower: $(VENV)-flower/.ready  ## FedAU against Flower's FedAvg in Flower's simulation, in an environment of its own
	FLWR_TELEMETRY_ENABLED=0 $(VENV)-flower/bin/python examples/flower/run.py

$(VENV)-flower/.ready: pyproject.toml
	$(PYTHON) -m venv $(VENV)-flower
	grep '^torch==' constraints.txt > $(VENV)-flower/constraints.txt
	$(VENV)-flower/bin/python -m pip install --quiet --no-compile --constraint $(VENV)-flower/constraints.txt \
		--editable '.[digits]' --editable ./packages/turnout-serve --editable ./packages/turnout-flower 'flwr[simulation]'
	touch $@

docs: $(VENV)/.docs  ## the documentation site, in site/; warnings are errors
	$(BIN)/python scripts/docs.py

$(VENV)/.docs: $(READY)
	$(BIN)/python -m pip install --quiet --no-compile --constraint constraints.txt --editable '.[docs]'
	touch $@

test: $(READY)  ## style beside types, and all but the long tests as soon as style is right
	$(MAKE) --no-print-directory --jobs 2 style types tests

test-all: $(READY)  ## the same with the long tests, which is every test
	$(MAKE) --no-print-directory --jobs 2 style types tests-all

check: style types platforms  ## style and types alone, also as Windows and macOS have the standard library

# The adapter for Flower is read, not installed: no environment with our pins can install Flower.
FLOWER := packages/turnout-flower/src

style: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	PYTHONPATH=$(FLOWER) $(BIN)/lint-imports --no-cache
	PYTHONPATH=$(FLOWER) $(BIN)/python scripts/imports.py > /dev/null

types: $(READY)
	$(BIN)/pyright src packages/turnout-serve/src packages/turnout-flower/src benchmarks reproductions

platforms: $(READY)  # and the tests, which CI runs, so that it need not check their types
	$(BIN)/pyright tests packages/turnout-serve/tests packages/turnout-flower/tests
	$(BIN)/pyright --pythonplatform Windows src packages/turnout-serve/src
	$(BIN)/pyright --pythonplatform Darwin src packages/turnout-serve/src

# Assertions are not rewritten, which takes each process 8 seconds; what fails is run again, with its values.
PYTEST = $(BIN)/python -m pytest --numprocesses 2 --dist loadfile --assert=plain
AGAIN = { $(BIN)/python -m pytest --last-failed --last-failed-no-failures none; false; }

tests: $(READY)
	$(PYTEST) -m 'not long' || $(AGAIN)

tests-all: $(READY)
	$(PYTEST) || $(AGAIN)

tests-long: $(READY)  # of the folders in PATHS
	$(PYTEST) -m long $(PATHS) || $(AGAIN)

format: $(READY)  ## put code in order
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:          ## remove the environment and what tools left
	rm -rf $(VENV) $(VENV)-flower .pytest_cache .ruff_cache .hypothesis build dist site *.egg-info src/*.egg-info packages/*/src/*.egg-info
