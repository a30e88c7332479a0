# Everything is set up by what needs it: `make demo` and `make test` work on a machine with Python 3.11 or later and make.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin

# Tests and tools see the same thing whatever the shell has set for this project.
unexport VALUESTREAM_DEPLOYMENT VALUESTREAM_NOW DAGSTER_HOME
# Compiled where it is first imported: of all that is installed a tenth ever is.
unexport PYTHONDONTWRITEBYTECODE
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --constraint requirements.lock

.PHONY: help demo test test-thorough lint rules bench ui clean
help:
	@echo "make demo    set up, then the main job on real data: deliveries become partitions"
	@echo "make ui      the demo's deployment in Dagster's UI (http://127.0.0.1:3000)"
	@echo "make test    set up, lint, then all tests"
	@echo "make test-thorough   many more random histories and kills, some 20 minutes"
	@echo "make lint    ruff and mypy"
	@echo "make bench   ratios against the unsafe way, about two minutes"
	@echo "make clean   remove what the demo made"

$(VENV)/.ready-demo: pyproject.toml requirements.lock
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) --editable ".[demo]"
	touch $@

$(VENV)/.ready-dev: pyproject.toml requirements.lock
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) --editable ".[dev]"
	touch $@ $(VENV)/.ready-demo

demo: $(VENV)/.ready-demo
	$(BIN)/python -m valuestream_dagster.demo

ui: $(VENV)/.ready-demo
	$(BIN)/valuestream --deployment deployments/demo ui

lint: $(VENV)/.ready-dev
	$(BIN)/ruff check .
	$(BIN)/mypy

test: lint
	$(BIN)/pytest --numprocesses auto

test-thorough: $(VENV)/.ready-dev
	$(BIN)/pytest --numprocesses auto -m thorough

rules: $(VENV)/.ready-dev
	$(BIN)/python -m valuestream_tests.rules

bench: $(VENV)/.ready-dev
	$(BIN)/python -m valuestream_dagster.bench

clean:
	rm -rf deployments/demo/state deployments/demo/landing bench-work
