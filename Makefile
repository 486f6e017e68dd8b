# pgveil needs Python 3.11 or later and make; everything else comes from the lock file.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
export PGVEIL_HOME ?= $(CURDIR)/.pgveil

.PHONY: setup demo test test-all lint bench load lock clients matrix clean
.DEFAULT_GOAL := demo

$(READY): requirements.lock pyproject.toml
	@echo "pgveil: making $(VENV) from requirements.lock (once; about a minute)"
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "pgveil needs Python 3.11 or later")'
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

setup: $(READY)

demo: $(READY)
	@exec $(BIN)/pgveil demo

# Each worker has its own PostgreSQL; a file stays with one, so that what its tests share is started once.
WORKERS ?= 2
test: $(READY)
	$(BIN)/python -m pytest -m "not slow and not clients" -n $(WORKERS) --dist loadfile $(ARGS)

test-all: $(READY)
	$(BIN)/python -m pytest $(ARGS)

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# What this machine or its registries lack is left out, and said; the tests skip those clients.
clients: $(READY)
	@PYTHON="$(PYTHON)" WITHOUT="$(WITHOUT)" sh tools/install_clients.sh

# The whole client matrix, and docs/CLIENTS.md and the README's table from what was seen.
matrix: clients
	PGVEIL_CLIENT_TABLE=docs/CLIENTS.md PGVEIL_CLIENT_README=README.md PGVEIL_CLIENT_PICTURES=.clients/pictures \
	  $(BIN)/python -m pytest -m clients tests/clients $(ARGS)

# pgbench with 64 clients for a minute; tells what it saw.
load: $(READY)
	$(BIN)/python tests/system/mixed_load.py $(SECONDS)

bench: $(READY)
	$(BIN)/python -m bench $(ONLY)

lock:
	uv pip compile --quiet --python-version 3.11 --universal --generate-hashes --extra dev --no-header --no-annotate \
	  --no-emit-index-url --output-file requirements.lock pyproject.toml requirements-build.in
	uv pip compile --quiet --python-version 3.11 --universal --generate-hashes --no-header --no-annotate \
	  --no-emit-index-url --output-file requirements-clients.lock requirements-clients.in
	uv pip compile --quiet --python-version 3.11 --universal --generate-hashes --no-header --no-annotate \
	  --no-emit-index-url --output-file requirements-superset.lock requirements-superset.in

clean:
	rm -rf $(VENV) .venv-clients .clients .pytest_cache .mypy_cache .ruff_cache .hypothesis
