# Every target makes what it needs by itself. Bare `make` prints this list.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
BIN := .venv/bin
PACKAGES := jobs coordinator cpu_worker client deploy
PINNED := coordinator cpu-worker client local
PYTEST := $(BIN)/python -m pytest
# Scripts are found by name, so that a new one is checked too.
SCRIPTS = $(shell git ls-files --cached --others --exclude-standard '*.sh' .ci/run)

.PHONY: help setup check format test unit contract integration stack-test bench requirements clean

help: ## print this list
	@sed -nE 's/^([a-z-]+):.*## (.*)/  make \1|\2/p' $(MAKEFILE_LIST) | awk -F'|' '{ printf "%-22s %s\n", $$1, $$2 }'

setup: ## make .venv with everything for development
	@deploy/environment.sh dev

check: setup ## style, types, the never rules, shell scripts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	@tool=$$(command -v $(BIN)/shellcheck || command -v shellcheck || true); \
	if [ -n "$$tool" ]; then echo "$$tool $(SCRIPTS)"; "$$tool" $(SCRIPTS); \
	elif [ "$${CI:-}" = true ]; then echo "error: shellcheck is not installed" >&2; exit 1; \
	else echo "skipped: shellcheck is not installed, so no script was checked" >&2; fi
	$(PYTEST) -q tests/unit/test_never_rules.py

format: setup ## format the code and mend what ruff can
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

test: setup ## all tests: unit, contract, integration, stack
	$(PYTEST) tests/unit tests/contract tests/integration tests/stack

unit: setup ## unit tests
	$(PYTEST) tests/unit

contract: setup ## every kind and device against the reference and the published answers
	$(PYTEST) tests/contract

integration: setup ## real Redis, real processes
	$(PYTEST) tests/integration

stack-test: setup ## the whole stack on a real Docker engine; without one it is skipped
	$(PYTEST) tests/stack

bench: setup ## measure against peers; ONLY=P2 runs one
	$(BIN)/python -m benchmarks $(if $(ONLY),--only $(ONLY))

requirements: ## pin and hash requirements/*.txt anew (needs uv and a way to a package index)
	@command -v uv >/dev/null || { echo "error: uv is not installed: pip install uv" >&2; exit 3; }
	@compile() { uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate \
	    --no-header --upgrade --group "pyproject.toml:$$1" "$${@:2}" -o "requirements/$$1.txt"; }; \
	echo "dev"; compile dev; \
	for group in $(PINNED); do echo "$$group"; compile "$$group" -c requirements/dev.txt; done

clean: ## remove what was made here; a local cluster's data in .cluster stays
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis benchmarks/results.json
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
