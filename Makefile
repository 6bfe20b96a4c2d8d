PYTHON ?= python3
VENV ?= .venv
SPARK ?= 3.5.9
BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check
NEEDS_NO_SERVER := -m "not (hdfs or s3 or stores or spark or flink or kafka or kerberos or prometheus or shells or chromium or slow)"
PYTEST = $(BIN)/python -m pytest -n 5 --dist loadgroup --no-loadscope-reorder $(if $(REPORT),--junitxml $(REPORT))
NOT_NIGHTLY = -m "not (stores or nightly)"
.DEFAULT_GOAL := help
.PHONY: help setup java maven promtool shells chromium kdc stores test-stores demo lint quick-tests check main-tests test test-rest test-all nightly test-spark durations coverage mutation cotenant spnego fuzz planted lines house docs not-run
.PHONY: bench bench-stores bench-hdfs bench-yarn bench-wan bench-packs bench-scale bench-fleet bench-spread bench-service bench-scrapes bench-status bench-promote bench-switch bench-retention bench-report bench-turns soak try-install try-kubernetes try-network deploy-check drill clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(VENV)/.installed ## install the locked Python packages and cpreplicate itself into .venv, or VENV=

$(VENV)/.installed: requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and "Python 3.10 or later is needed; set PYTHON=")'
	$(PYTHON) -m venv $(VENV) || (sh scripts/need.sh venv && $(PYTHON) -m venv $(VENV))
	$(INSTALL) -r requirements.lock
	$(INSTALL) --no-deps -e .
	@touch $@

java:
	@sh scripts/need.sh java

maven: java
	@sh scripts/need.sh maven

promtool:
	@sh scripts/need.sh promtool
	@sh scripts/need.sh node_exporter

shells:
	@sh scripts/need.sh zsh
	@sh scripts/need.sh fish
	@sh scripts/need.sh groff
	@sh scripts/need.sh mandoc

chromium:
	@sh scripts/need.sh chromium

kdc:
	@sh scripts/need.sh kdc

# pip compiles what WebHDFS needs for Kerberos, so it is not in requirements.lock.
spnego: $(VENV)/.spnego

$(VENV)/.spnego: $(VENV)/.installed requirements-spnego.lock
	@sh scripts/need.sh spnego
	$(INSTALL) --constraint requirements.lock -r requirements-spnego.lock
	@touch $@

stores: ## install the object stores of the tests into .stores: versitygw, fake-gcs-server, Azurite
	@sh scripts/install_stores.sh

test-stores: setup stores ## each kind of object store, on a real server, which no other target runs: four minutes
	$(BIN)/python -m pytest -q -m stores tests/storage/test_conformance.py tests/stores

demo: setup java ## replicate a real checkpoint, then the next one incrementally, and verify
	@sh scripts/demo.sh

lint: setup ## ruff, mypy, the contracts between the layers, the limits of make house
	$(BIN)/ruff check cpreplicate deploy tests scripts
	$(BIN)/ruff format --check cpreplicate deploy tests scripts
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python scripts/house.py --check

quick-tests: setup
	$(BIN)/python -m pytest -q -n 3 --dist worksteal --part main $(NEEDS_NO_SERVER)

# Many tests wait for a process or a clock: so more of them run than there are cores, and lint runs
# beside them. Each prints its output in one piece.
check: setup ## lint, and every test that needs no server and is quick: before each commit
	@$(MAKE) --no-print-directory --jobs 2 --output-sync=target lint quick-tests

main-tests: setup
	$(PYTEST) $(NOT_NIGHTLY) --part main

# Lint prints its lines between those of the tests: nobody waits for the tests to see them.
test: setup maven promtool shells chromium kdc ## lint, and each promise once on its real server: a quarter of an hour on two cores
	@$(MAKE) --no-print-directory --jobs 2 lint main-tests

test-rest: setup maven promtool shells chromium kdc ## what `make test` leaves out, but for the night: before an issue is called resolved
	$(PYTEST) $(NOT_NIGHTLY) --part rest

test-all: lint maven promtool shells chromium kdc spnego ## every test but those of `make test-stores`, in one run
	$(PYTEST) -m "not stores"

# Spark 3.5 is what most clusters run. Its pyspark leaves sockets open, which the tests would report.
# EXECUTORS_JAVA=/path/of/java is that of the standalone cluster: Java 8 or 11 with Spark 3.5.
test-spark: $(VENV)-spark-$(SPARK)/.installed ## the tests of the Spark runner with Spark 3.5.9, or SPARK=: ten minutes
	TESTS_EXECUTORS_JAVA=$(EXECUTORS_JAVA) $(dir $<)bin/python -m pytest -n 2 -W ignore::pytest.PytestUnraisableExceptionWarning \
		tests/runners tests/servers/test_own_session.py

$(VENV)-spark-$(SPARK)/.installed: requirements.lock pyproject.toml
	$(PYTHON) -m venv $(dir $@)
	grep -Ev '^(pyspark|py4j)==' requirements.lock > $(dir $@)others.txt
	$(dir $@)bin/python -m pip install --quiet --disable-pip-version-check -r $(dir $@)others.txt pyspark==$(SPARK)
	$(dir $@)bin/python -m pip install --quiet --disable-pip-version-check --no-deps -e .
	@touch $@

# Before an issue is called resolved, with fewer histories: `make nightly HISTORIES=2000`.
nightly: setup maven promtool shells kdc spnego ## all seeds, the whole matrix of versions, 20,000 histories or HISTORIES=, drills
	$(MAKE) --no-print-directory cotenant
	TESTS_OTHER_EXAMPLES=1 $(MAKE) --no-print-directory quick-tests
	TESTS_EVERY_POINT=1 $(MAKE) --no-print-directory test-stores
	$(MAKE) --no-print-directory test-spark SPARK=3.5.9
	$(MAKE) --no-print-directory test-spark SPARK=4.0.5
	TESTS_CONNECTORS=3,4,5 $(BIN)/python -m pytest tests/kafka/test_rows_flink.py
	$(PYTEST) -m "nightly and not stores" --part rest
	if [ "$$(id -u)" = 0 ] && command -v go; then $(MAKE) --no-print-directory try-kubernetes; \
		else echo "not run, for want of root or Go: make try-kubernetes"; fi
	$(MAKE) --no-print-directory drill

durations: ## run every test, and record the seconds by which the tests are ordered
	$(MAKE) --no-print-directory test-all REPORT=.durations.xml
	$(BIN)/python scripts/record_durations.py .durations.xml

# pytest-cov and mutmut are not in requirements.lock: only these two targets need them.
coverage: setup ## the lines and branches that the tests of make check run, processes that they start included
	$(INSTALL) --constraint requirements.lock pytest-cov==7.1.0
	$(BIN)/python -m pytest -q -n 2 --dist worksteal $(NEEDS_NO_SERVER) --cov --cov-report=term-missing:skip-covered

mutation: setup ## mutants of core, protocol and operations, or of MUTANTS=: docs/mutation-testing.md
	$(INSTALL) --constraint requirements.lock mutmut==3.8.1
	$(BIN)/python -m mutmut run --max-children 2 $(MUTANTS)
	$(BIN)/python -m mutmut results

cotenant: setup ## 20,000 histories, or HISTORIES=, of Flink and cpreplicate in the same directories
	TESTS_HISTORIES=$(or $(HISTORIES),20000) $(BIN)/python -m pytest -n 2 --timeout 3600 tests/histories/test_cotenant.py

planted: setup ## how many planted bugs the simulations find, within 2,000 seeds or SEEDS= each: BUG= names one
	$(BIN)/python scripts/planted.py --seeds $(or $(SEEDS),2000) $(BUG)

# What builds the site is not in requirements.lock: only this target needs it.
docs: $(VENV)/.docs ## the site of the documentation in .site: strict, each link checked, without network access
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	$(BIN)/python -m scripts.site.check .site
	@echo "To look at it: $(BIN)/python -m http.server --directory .site"

$(VENV)/.docs: $(VENV)/.installed requirements-docs.lock
	$(INSTALL) --constraint requirements.lock -r requirements-docs.lock
	@touch $@

not-run: setup ## the commands of the documentation that no test runs, with the reasons
	@$(BIN)/python -c 'from scripts.site import pages; print(pages.not_run(pages.DOCS))'

lines: setup ## lines of code and of docstrings by folder, now or in REVISION=, and what changed since AGAINST=
	$(BIN)/python scripts/count_lines.py $(REVISION) $(if $(AGAINST),--against $(AGAINST))

house: setup ## rooms of each folder, and the arrows between them, against their limits
	$(BIN)/python scripts/house.py

drill: setup maven ## lose a data centre ten times in a row, or DRILLS=, on each version of Flink: docs/drill.md
	$(BIN)/python scripts/drill.py --drills $(or $(DRILLS),10)

try-install: setup ## the wheel by pip, pipx and uv, each in an empty environment; needs the network
	$(BIN)/python scripts/try_install.py $(foreach python,$(PYTHONS),--python $(python))

try-kubernetes: setup java ## runs on a real Kubernetes of this machine; needs root, Go and ten minutes for the first time
	$(BIN)/python scripts/try_kubernetes.py

try-network: setup maven ## syncs between five network namespaces that fail, or CASES= of them: docs/network.md; needs root
	@sh scripts/need.sh network
	$(BIN)/python scripts/try_network.py $(CASES)

deploy-check: setup java ## deploy/ by Helm, Kubernetes, Airflow and a container runtime, or CHECKS= of them; as try-kubernetes
	$(BIN)/python scripts/check_deployment.py $(CHECKS)

bench: setup maven ## decode speed against Flink's own loader, what a plan, a round and a start cost
	$(BIN)/python scripts/bench_decode.py
	$(BIN)/python scripts/bench_plan.py
	$(BIN)/python scripts/bench_rounds.py
	$(BIN)/python scripts/bench_trips.py
	$(BIN)/python scripts/bench_start.py
	$(BIN)/python scripts/bench_refs.py

bench-stores: setup stores ## 1,000 files of 64 KiB to versitygw, against rclone with 32 transfers
	$(BIN)/python scripts/bench_stores.py

bench-hdfs: setup maven ## two HDFS clusters: cpreplicate against DistCp, seconds and calls a file
	$(BIN)/python scripts/bench_hdfs.py

bench-yarn: setup maven ## one YARN: against DistCp with 4 and 20 maps, start included, and where the start goes
	$(BIN)/python scripts/bench_yarn.py

bench-wan: setup maven ## the share of an emulated long-distance link that is used
	$(BIN)/python scripts/bench_wan.py

bench-packs: setup maven ## the memory of tasks that pack small files
	$(BIN)/python scripts/bench_packs.py

bench-scale: setup maven ## 1 to 8 executors over an emulated network, a plan of 10 TB, and peers
	$(BIN)/python scripts/bench_scale.py

bench-fleet: setup maven ## 1,000 jobs of which few changed, against a run a job
	$(BIN)/python scripts/bench_fleet.py

bench-spread: setup ## whole syncs of small jobs by 1 to 8 executors, far from their storages
	$(BIN)/python scripts/bench_spread.py

bench-service: setup ## the lag of 1,000 jobs that one service follows
	$(BIN)/python scripts/bench_service.py

bench-scrapes: setup ## what 50 scrapes a second of 1,000 jobs cost the syncs of a service
	$(BIN)/python scripts/bench_scrapes.py

soak: setup maven ## a fleet for 30 minutes, or MINUTES=, while jobs come and go and one fault follows another: fails if its memory grows
	$(BIN)/python scripts/soak.py --minutes $(or $(MINUTES),30)

bench-status: setup ## status and list of 1,000 replicas, at most 0.5 and 0.4 ms of CPU each
	$(BIN)/python scripts/bench_status.py

bench-promote: setup ## promote --all of 1,000 replicas, at most 30 ms of CPU each, and back
	$(BIN)/python scripts/bench_promote.py

bench-switch: setup maven ## the standstill of a job that moves over an emulated link, against DistCp
	$(BIN)/python scripts/bench_switch.py

bench-retention: setup ## a sync with 1, 30, 720 points: 0.5 ms a point; bytes at most 1.3 times their files, packed 1.8
	$(BIN)/python scripts/bench_retention.py

bench-turns: setup ## the first commit of jobs that delete what is being copied, over a line of 4 MiB/s
	$(BIN)/python scripts/bench_turns.py

bench-report: setup chromium ## a page of 300,000 state handles: 15 MB, first paint in 2 s, a sort in 1 s
	$(BIN)/python scripts/bench_report.py

# Atheris is not in requirements.lock: it is there for some Pythons only, 3.11 to 3.13.
fuzz: setup ## damaged _metadata, guided by coverage, for an hour or SECONDS=; what fails is kept in .fuzz
	$(INSTALL) atheris==3.0.0
	$(BIN)/python scripts/fuzz_metadata.py $(if $(SECONDS),--seconds $(SECONDS))

clean: ## remove what the other targets made
	rm -rf .venv .venv-* .site .demo .deployment .fuzz .kubernetes .stores tests/flink/target-* tests/hdfs/target tests/kafka/target tests/kafka/job/target-* tests/yarn/build scripts/bench/build
	rm -rf .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache mutants .coverage .coverage.* .durations.xml
