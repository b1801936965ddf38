# Every target creates its prerequisites. Plain `make` prints this list.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
BIN := .venv/bin
PINNED := coordinator cpu-worker gpu-worker runner autoscaler client ssh discovery plots dask local web docs s3 tracing grpc
PYTEST := $(BIN)/python -m pytest
# Options for tests that start no clusters and are limited by the CPU.
PARALLEL := -n auto --maxprocesses=4 --dist worksteal
# Options for tests in groups that share a cluster or containers: a process runs one group after another. These tests
# mostly wait, so four processes suit two cores.
TOGETHER := -n 4 --dist loadscope --no-loadscope-reorder -m "not alone"
# The longest test sets come first, so that no core is idle at the end.
SETS := tests/stack tests/soak tests/chaos tests/hostile tests/integration tests/contract tests/unit
# Options for browser tests, which are so CPU-intensive that two processes use two cores. The tests of a file share a
# cluster.
BROWSERS := -n 2 --dist loadscope --no-loadscope-reorder -m "browser and not alone" tests/browser
# Folders with tests that must run alone; a test checks this list.
ALONE := tests/integration tests/hostile tests/browser
# Without bytecode files, each of the hundreds of test processes would compile its sources.
unexport PYTHONDONTWRITEBYTECODE
# Python interpreter for GPU tests, which needs CuPy.
GPU_PYTHON ?= $(BIN)/python
# Valkey server for additional tests.
VALKEY_SERVER ?= $(shell command -v valkey-server)
# Scripts are found by name, so that new scripts are checked too.
SCRIPTS = $(shell git ls-files --cached --others --exclude-standard '*.sh' .ci/run)

.PHONY: help setup check format test python-test unit contract valkey-test integration hostile browser-test stack-test kubernetes-lint kubernetes-test chaos soak web web-test openapi proto \
  bench bench-scale greedy-equal gpu-host-test gpu-test gpu-bench requirements clean

help: ## print this list
	@sed -nE 's/^([a-z-]+):.*## (.*)/  make \1|\2/p' $(MAKEFILE_LIST) | awk -F'|' '{ printf "%-22s %s\n", $$1, $$2 }'

setup: ## make .venv with everything for development
	@deploy/environment.sh dev

check: setup ## style, types, the never rules, shell scripts, the pages' style
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	@git ls-files -z '*.md' '*.py' '*.lua' '*.toml' ':!tests' ':!benchmarks' ':!*_pb2.py' | xargs -0 $(BIN)/codespell
	@tool=$$(command -v $(BIN)/shellcheck || command -v shellcheck || true); \
	if [ -n "$$tool" ]; then echo "$$tool $(SCRIPTS)"; "$$tool" $(SCRIPTS); \
	elif [ "$${CI:-}" = true ]; then echo "error: shellcheck is not installed" >&2; exit 1; \
	else echo "skipped: shellcheck is not installed, so no script was checked" >&2; fi
	@deploy/pages.sh lint
	$(PYTEST) -q tests/unit/test_never_rules.py

format: setup ## format the code and mend what ruff can
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .
	@deploy/pages.sh format

test: web-test python-test ## all tests: unit, contract, integration, hostile, chaos, soak, browser, stack, and those of the pages' code

python-test: setup web ## all tests but those of the pages' code
	$(PYTEST) $(TOGETHER) $(SETS)
	$(PYTEST) $(BROWSERS)
	$(PYTEST) -m alone $(ALONE)

unit: setup ## unit tests
	$(PYTEST) $(PARALLEL) tests/unit

contract: setup ## every kind and device against the reference and the published answers
	$(PYTEST) $(PARALLEL) tests/contract

valkey-test: setup ## the lease protocol and the users of Redis on a Valkey; VALKEY_SERVER is its valkey-server
	@test -n "$(VALKEY_SERVER)" || { echo "error: no valkey-server is on PATH: say where one is: VALKEY_SERVER=/path/to/valkey-server" >&2; exit 2; }
	VALKEY_SERVER=$(VALKEY_SERVER) $(PYTEST) -k valkey tests/contract tests/unit/test_redis_server.py tests/integration/test_redis_acl.py

integration: setup ## real Redis, real processes
	$(PYTEST) tests/integration

hostile: setup ## hostile input of every sort; MINUTES=30 looks for longer, SEED=N begins where a run that failed did
	$(PYTEST) tests/hostile $(if $(MINUTES),--hostile-minutes=$(MINUTES) --timeout=0) $(if $(SEED),--hostile-seed=$(SEED))

browser-test: setup web ## the pages in a real browser over a real cluster; without chromium they are skipped
	$(PYTEST) tests/browser

stack-test: setup ## the whole stack on a real Docker engine; without one it is skipped
	$(PYTEST) tests/stack

kubernetes-lint: setup ## checkov on the manifests; its first run installs 290 MB, so make check does without
	tests/kubernetes/lint.sh

kubernetes-test: setup ## the cluster on the Kubernetes that KUBECONFIG names; without one it is skipped
	$(PYTEST) tests/kubernetes

chaos: setup ## seeds full of faults for MINUTES=60; SEED=7 plays one again, FAULTS=network,kill,exhaust picks families
	$(BIN)/python -m tests.chaos $(if $(SEED),--seed $(SEED)) $(if $(MINUTES),--minutes $(MINUTES)) \
	  $(if $(FAULTS),--faults $(FAULTS)) $(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(FIRST),--first $(FIRST)) $(if $(PLAN),--plan)

soak: setup ## a cluster under steady load for MINUTES=30, whose processes and Redis must not grow; 4320 is three days
	$(BIN)/python -m tests.soak $(if $(MINUTES),--minutes $(MINUTES)) $(if $(SAMPLES),--samples $(SAMPLES))

web: setup ## build the pages and the documentation into web/dist, if they are not as their sources are
	@deploy/pages.sh
	@deploy/documentation.sh

web-test: setup ## the pages' own tests, types and sizes
	@deploy/pages.sh test

openapi: setup ## write web/openapi.json, from which the pages' types are made
	$(BIN)/python -m coordinator.openapi > web/openapi.json.new
	mv web/openapi.json.new web/openapi.json

gpu-host-test: setup ## the GPU kernels without a GPU: NVRTC compiles them, the host runs them against the reference
	$(PYTEST) $(wildcard tests/contract/test_gpu_*.py tests/unit/test_gpu*.py) tests/integration/test_gpu_worker.py \
	  tests/integration/test_balance.py

gpu-test: $(if $(filter $(BIN)/python,$(GPU_PYTHON)),setup) ## the same and more on a GPU; GPU_PYTHON is a Python that has CuPy
	@$(GPU_PYTHON) -c 'import cupy' || $(GPU_PYTHON) -m pip install --require-hashes -r requirements/gpu-worker.txt
	$(GPU_PYTHON) -m tests.gpu

gpu-bench: ## measure on a GPU (goal P4); GPU_PYTHON as above
	$(GPU_PYTHON) -m benchmarks --only P4

proto: setup ## make the code of gRPC's messages from coordinator/rpc/cluster.proto
	$(BIN)/python -m grpc_tools.protoc -I. --python_out=. --pyi_out=. coordinator/rpc/cluster.proto

greedy-equal: setup ## the same greedy text by llama.cpp and by Transformers from the same weights; ENGINE_PYTHON has torch and transformers
	@test -n "$(ENGINE_PYTHON)" || { echo "error: say which Python has torch and transformers: ENGINE_PYTHON=/path/to/python" >&2; exit 2; }
	$(BIN)/python -m tests.greedy_equal --python $(ENGINE_PYTHON)

bench: setup ## measure against peers; ONLY=P2 runs one goal, ONLY=collatz a kind's, GUARDED=1 with tokens, caps and audit, WORKER_API=1 a worker over the API, CPU_LEVEL=avx2 kernels and peers for a lesser CPU
	$(BIN)/python -m benchmarks $(if $(ONLY),--only $(ONLY))

bench-scale: setup ## goal P8: 1,000 simulated workers, 100,000 queued jobs, 1,000 listeners; at most 12 minutes, wants an idle machine; QUICK=1 tries it
	$(BIN)/python -m benchmarks --only P8

requirements: ## pin and hash requirements/*.txt anew (needs uv and a way to a package index)
	@command -v uv >/dev/null || { echo "error: uv is not installed: pip install uv" >&2; exit 3; }
	@compile() { uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate \
	    --no-header --upgrade --group "pyproject.toml:$$1" "$${@:2}" -o "requirements/$$1.txt"; }; \
	echo "dev"; compile dev; \
	for group in $(PINNED); do echo "$$group"; compile "$$group" -c requirements/dev.txt; done

clean: ## remove what was made here; a local cluster's data in .cluster stays
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis benchmarks/results.json \
	  web/node_modules web/dist tests/browser/screenshots
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
