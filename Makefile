PYTHON ?= python3
BIN := .venv/bin
.DEFAULT_GOAL := help
.PHONY: help setup java maven demo check test cotenant lint bench bench-hdfs bench-wan bench-scale bench-fleet try-kubernetes fuzz clean

help: ## what each target does
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: .venv/.installed ## install the locked Python packages and cpreplicate itself into .venv

.venv/.installed: requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and "Python 3.10 or later is needed; set PYTHON=")'
	$(PYTHON) -m venv .venv || (sh scripts/need.sh venv && $(PYTHON) -m venv .venv)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps -e .
	@touch $@

java:
	@sh scripts/need.sh java

maven: java
	@sh scripts/need.sh maven

demo: setup java ## replicate a real checkpoint, then the next one incrementally, and verify
	@sh scripts/demo.sh

lint: setup ## ruff, mypy strict, the layers
	$(BIN)/ruff check cpreplicate tests scripts
	$(BIN)/ruff format --check cpreplicate tests scripts
	$(BIN)/mypy
	$(BIN)/lint-imports

check: lint ## lint, and every test that needs no server and is quick: before each commit
	$(BIN)/python -m pytest -q -n 2 -m "not (hdfs or s3 or spark or flink or slow)"

test: lint maven ## lint and every test, real Spark and real Flink included
	$(BIN)/python -m pytest -n 2 --dist loadgroup --no-loadscope-reorder

cotenant: setup ## 20,000 histories, or HISTORIES=, of Flink and cpreplicate in the same directories
	CPREPLICATE_HISTORIES=$(or $(HISTORIES),20000) $(BIN)/python -m pytest -n 2 --timeout 3600 tests/test_cotenant.py

try-kubernetes: setup java ## runs on a real Kubernetes of this machine; needs root, Go and ten minutes for the first time
	$(BIN)/python scripts/try_kubernetes.py

bench: setup maven ## decode speed against Flink's own loader, and what a plan costs the driver
	$(BIN)/python scripts/bench_decode.py
	$(BIN)/python scripts/bench_plan.py

bench-hdfs: setup maven ## two HDFS clusters: cpreplicate against DistCp, seconds and calls a file
	$(BIN)/python scripts/bench_hdfs.py

bench-wan: setup maven ## the share of an emulated long-distance link that is used
	$(BIN)/python scripts/bench_wan.py

bench-scale: setup maven ## 1 to 8 executors over an emulated network, a plan of 10 TB, and peers
	$(BIN)/python scripts/bench_scale.py

bench-fleet: setup maven ## 1,000 jobs of which few changed, against a run a job
	$(BIN)/python scripts/bench_fleet.py

# Atheris is not in requirements.lock: it is there for some Pythons only, 3.11 to 3.13.
fuzz: setup ## damaged _metadata, guided by coverage, for an hour or SECONDS=; what fails is kept in .fuzz
	$(BIN)/python -m pip install --quiet --disable-pip-version-check atheris==3.0.0
	$(BIN)/python scripts/fuzz_metadata.py $(if $(SECONDS),--seconds $(SECONDS))

clean: ## remove what the other targets made
	rm -rf .venv .demo .fuzz .kubernetes tests/flink/target-* tests/hdfs/target tests/yarn/build scripts/bench/build .mypy_cache .ruff_cache .pytest_cache .hypothesis
