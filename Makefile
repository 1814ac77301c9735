# wukongs: `make demo` and `make test` set everything up by themselves. Needs python3 (3.11 or newer), make and Java 17+.
PYTHON ?= python3
VENV   := .venv
PY     := $(VENV)/bin/python
PACKAGES := $(VENV)/.packages
READY  := $(VENV)/.ready

.PHONY: help setup demo docs wheel wheel-clean test test-ci test-all test-nojit fresh-seeds lint bench bench-small bench-continuous bench-paced bench-interactive bench-nodes scale soak lock clean test-kafka test-face faults faults-pipeline faults-cluster faults-minutes fuzz fuzz-windows fuzz-views sim model soak-cluster repeat-tests
.DEFAULT_GOAL := help

help:
	@echo 'make demo        run the main job on data that it makes itself; from a fresh clone it installs the packages first'
	@echo 'make test        run the fast tests (under 5 minutes after set-up; docs/testing.md has the tiers)'
	@echo 'make test-ci     run the slow tests and more examples, the kernels un-jitted, and lint (SEED=n repeats a run)'
	@echo 'make test-all    run everything, with five times the examples (an hour or two; SEED=n repeats a run)'
	@echo 'make test-kafka  run the tests of the Kafka source on a real broker, whose jars it fetches once (needs Java)'
	@echo 'make test-face   run the console in Chromium, clients from npm and PyPI, the notebook and the site'
	@echo 'make test-nojit  run the kernels un-jitted on tiny data'
	@echo 'make repeat-tests  run the fast tests RUNS=20 times, each fourth one with load beside it; outputs of failed runs stay in build/repeat/'
	@echo 'make fresh-seeds try new random seeds: examples, simulator, fuzzing, kills (SEED=n repeats a run)'
	@echo 'make faults      kill a durable engine a thousand times (minutes; SEED=n repeats a run)'
	@echo 'make faults-pipeline  RUNS=200 lives of writers, nodes and Spark that are killed (an hour; SEED=n repeats a run)'
	@echo 'make faults-cluster  FAULTS=200 random faults at the processes of a cluster (half an hour; SEED=n repeats a run)'
	@echo 'make faults-minutes  the same for MINUTES=5, as CI runs it after its tests'
	@echo 'make fuzz        QUERIES=100000 random queries here, in pyoxigraph and by the definitions (SEED=n repeats a run)'
	@echo 'make fuzz-views CONTENTS=100000 contents of live views, against pyoxigraph and the definitions'
	@echo 'make fuzz-windows WINDOWS=100000 windows of continuous queries, made for each mechanism, against pyoxigraph'
	@echo 'make sim         SEEDS=10000 lives of a simulated cluster, with loss, partitions and crashes (FIRST=n for others)'
	@echo 'make model       visit every state of the small models of the protocol (some minutes)'
	@echo 'make lint        ruff and mypy'
	@echo 'make docs        the documentation as a site, in build/site'
	@echo 'make wheel       the wheel, in dist/; make wheel-clean also installs it with all its packages, and tries it'
	@echo 'make bench       all usual experiments of LSBench (bench/README.md)'
	@echo 'make bench-small all runs of `wukongs bench` at a tiny size, with their reports in build/bench-small/'
	@echo 'make bench-continuous  what a firing of L1-L3 takes, part by part; many queries at once; registration'
	@echo 'make bench-paced from tuple to answer at the rates of the paper'
	@echo 'make bench-interactive  look-ups, hops and paths on 6.4 M edges that change, one at a time and many at once'
	@echo 'make bench-nodes L1-L6 and S1-S6 on clusters of 1, 2, 4 and 8 processes here (10 minutes)'
	@echo 'make soak        20 million ever-new strings through a stream: does memory stay flat?'
	@echo 'make soak-cluster  three nodes with data folders at 50,000 tuples a second for MINUTES=60: does anything grow?'
	@echo 'make scale       load networks of 1 K to as many users as fit, ask them, and raise the rates of streams (an hour or more)'
	@echo 'make setup       virtual environment in .venv, with the locked packages, compiled kernels and classes of Spark'
	@echo 'make lock        renew requirements.lock from pyproject.toml, that of the image, and requirements-uv.lock (needs uv)'
	@echo 'make clean       remove .venv and caches'

setup: $(READY)

# Installed packages and the console's files: all that a run needs. It interprets kernels that are not compiled yet.
$(PACKAGES): requirements.lock requirements-uv.lock pyproject.toml tools/install_packages.py
	@$(PYTHON) tools/check_machine.py
	@test -x $(PY) || $(PYTHON) -m venv $(VENV)
	@$(PY) tools/fetch_console.py & $(PY) tools/install_packages.py; installed=$$?; wait; exit $$installed
	@touch $@

# What takes minutes, and saves them wherever much is run: compiled kernels, Spark's classes, compiled Python files.
$(READY): $(PACKAGES)
	@$(PY) -m compileall -q -j 2 csparql store wukongs adapters $(VENV)/lib
	@WUKONGS_KERNELS=compile $(PY) tools/compile_kernels.py
	@$(PY) tools/archive_classes.py
	@$(KEEPING) --collect-only -qq >/dev/null || true
	@touch $@

# Python's files are kept compiled, whatever the environment says: otherwise each of Spark's processes compiles them anew.
demo: $(PACKAGES)
	@PYTHONDONTWRITEBYTECODE= $(VENV)/bin/wukongs demo

# Files in their order: by default those with one long test come last, when the other worker has nothing left. What pytest
# makes of the tests is kept, whatever the environment says of Python's files: to make it takes 12 s in each worker.
WORKERS := 2
KEEPING := PYTHONDONTWRITEBYTECODE= $(PY) -m pytest
PYTEST = $(KEEPING) -n $(WORKERS) --dist loadfile --no-loadscope-reorder --max-worker-restart 0
# A new seed for each run of make, unless one is given.
ifndef SEED
SEED := $(shell od -An -N2 -tu2 /dev/urandom | tr -d ' ')
# Each commit is tried by the same examples: what fails has come with it. `make fresh-seeds` looks for what others find.
test-ci: SEED := 1
endif
AGAIN := $(MAKE) --no-print-directory SEED=$(SEED)

# A third of its time is waiting, for processes and clusters: so four at a time on two cores.
test: WORKERS := 4
test: $(READY)
	@$(PYTEST) -m 'not slow'

# A test that fails once in many runs. Two busy processes are the load.
repeat-tests: RUNS ?= 20
repeat-tests: $(READY)
	@mkdir -p build/repeat; failed=0; \
	for run in $$(seq $(RUNS)); do \
		output=build/repeat/run-$$run.txt; load=''; \
		if [ $$((run % 4)) = 0 ]; then for core in 1 2; do timeout 3600 sha256sum /dev/zero & load="$$load $$!"; done; fi; \
		if $(MAKE) --no-print-directory test >$$output 2>&1; then told=passed; else told=FAILED; failed=$$((failed + 1)); fi; \
		if [ -n "$$load" ]; then kill $$load; fi; \
		echo "run $$run: $$told $$(grep -E '^(failed|error): ' $$output | tr '\n' ' ')$$(tail -n 1 $$output)"; \
		if [ $$told = passed ]; then rm $$output; fi; \
	done; \
	echo "$$failed of $(RUNS) runs failed"; [ $$failed = 0 ]

# What `make test` leaves out, and with all examples what it runs with few.
test-ci: WORKERS := 3
test-ci: $(READY)
	@WUKONGS_TIER=ci WUKONGS_SEED=$(SEED) $(PYTEST) -m '(slow or examples) and not rare'
	@$(AGAIN) test-nojit lint

test-all: $(READY)
	@WUKONGS_TIER=all WUKONGS_SEED=$(SEED) $(PYTEST) -o faulthandler_timeout=0
	@$(AGAIN) test-nojit lint model faults fuzz fuzz-windows fuzz-views
	@$(AGAIN) sim FIRST=$(SEED)0000
	@$(AGAIN) bench-small

# `make test` tries the same on the mock cluster of the client library.
test-kafka: $(READY)
	@WUKONGS_KAFKA=real $(PY) -m pytest tests/kafka

# The console in Chromium, and clients of others, unchanged, from PyPI and npm. What is absent is skipped.
test-face: $(READY)
	@WUKONGS_TIER=ci $(PY) -m pytest tests/browser tests/npm tests/unit/server tests/unit/query/test_html.py tests/golden/test_site.py

# Un-jitted kernels: slow by nature, so only the tests marked for tiny data.
test-nojit: $(READY)
	@NUMBA_DISABLE_JIT=1 $(PYTEST) -m 'nojit and not slow'

# Each part runs, also after one has failed, and says how to repeat what fails.
fresh-seeds: SEEDS = 2000
fresh-seeds: QUERIES = 20000
fresh-seeds: WINDOWS = 20000
fresh-seeds: $(READY)
	@failed=0; \
	WUKONGS_TIER=ci WUKONGS_SEED=$(SEED) $(PYTEST) -m examples || failed=1; \
	WUKONGS_FAULTS=20 WUKONGS_FAULTS_SEED=$(SEED) $(PY) -m pytest -n 2 tests/faults/test_kill.py || failed=1; \
	$(PY) -m tests.sim.run --seeds $(SEEDS) --from $(SEED)0000 --jobs 2 || failed=1; \
	$(PY) -m tests.fuzzing.run --queries $(QUERIES) --seed $(SEED) || failed=1; \
	$(PY) -m tests.fuzzing.run --windows $(WINDOWS) --seed $(SEED) || failed=1; \
	echo "seed $(SEED). To repeat all of it: make fresh-seeds SEED=$(SEED)"; exit $$failed

# Another seed each time; what fails prints its own.
faults: $(READY)
	@WUKONGS_FAULTS=200 WUKONGS_FAULTS_SEED=$(SEED) $(PY) -m pytest -n 2 -o faulthandler_timeout=0 tests/faults

# Writers, durable nodes and all of Spark's processes, killed at random: RUNS lives, a quarter of them through Spark.
faults-pipeline: RUNS ?= 200
faults-pipeline: SPARK_RUNS = $(shell echo $$(($(RUNS) / 4)))
faults-pipeline: $(READY)
	@WUKONGS_PIPELINE_RUNS=$$(($(RUNS) - $(SPARK_RUNS))) WUKONGS_PIPELINE_SPARK_RUNS=$(SPARK_RUNS) WUKONGS_FAULTS_SEED=$(SEED) \
	$(PY) -m pytest -n 2 -o faulthandler_timeout=0 tests/faults/test_pipeline.py tests/faults/test_late_pipelines.py \
	tests/faults/test_spark_lives.py

# Nodes that are killed, stopped, cut off, or lack disk, memory or descriptors, under writes, compared with a model.
FAULTS ?= 200
faults-cluster: $(READY)
	@WUKONGS_CLUSTER_FAULTS=$(FAULTS) WUKONGS_FAULTS_SEED=$(SEED) \
	$(PY) -m pytest -s -m slow -o faulthandler_timeout=0 tests/faults/test_random_faults.py

# Once the minutes are over, a last fault is healed and all is compared: five minutes more at most.
faults-minutes: MINUTES = 5
faults-minutes: $(READY)
	@WUKONGS_CLUSTER_MINUTES=$(MINUTES) WUKONGS_FAULTS_SEED=$(SEED) timeout --kill-after=10 $$(($(MINUTES) * 60 + 300)) \
	$(PY) -m pytest -s -m slow -o faulthandler_timeout=0 tests/faults/test_random_faults.py

# A quarter of an hour on two cores; status 1 if a disagreement stays open, with its smallest query and data.
QUERIES ?= 100000
fuzz: $(READY)
	@$(PY) -m tests.fuzzing.run --queries $(QUERIES) --seed $(SEED)

# Twenty minutes on two cores; status 1 also if a mechanism has found too few of the windows that are made for it.
WINDOWS ?= 100000
fuzz-windows: $(READY)
	@$(PY) -m tests.fuzzing.run --windows $(WINDOWS) --seed $(SEED)

# A quarter of an hour on two cores.
CONTENTS ?= 100000
fuzz-views: $(READY)
	@$(PY) -m tests.fuzzing.run --views $(CONTENTS) --seed $(SEED)

SEEDS ?= 10000
FIRST ?= 0
sim: $(READY)
	@$(PY) -m tests.sim.run --seeds $(SEEDS) --from $(FIRST) --jobs 2

model: $(READY)
	@$(PY) -m tests.model.run

lint: $(READY)
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check .
	@$(PY) -m mypy
	@$(PY) -m mypy tools

# Hints of the theme's makers about other products are no warnings about our pages.
docs: $(READY)
	@NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --quiet --strict
	@echo 'build/site/index.html'

wheel: $(READY)
	@rm -rf build/lib build/bdist.* && mkdir -p dist
	@$(PY) -m pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation --wheel-dir dist .
	@ls dist/wukongs-*.whl

# Takes all packages from the index, into an environment of its own: some minutes.
wheel-clean: wheel
	@WUKONGS_WHEEL=clean $(PY) -m pytest -q tests/unit/test_wheel.py

bench: $(READY)
	@$(PY) -m wukongs.bench

# All runs at a tiny size, to look at: build/bench-small/lsbench/report.html and its neighbours.
bench-small: $(READY)
	@rm -rf build/bench-small
	@$(PY) -m wukongs.bench all --quick --peers pyoxigraph --report build/bench-small >/dev/null
	@ls build/bench-small/*/report.html

bench-continuous: $(READY)
	@$(PY) -m wukongs.bench continuous --report build/continuous

bench-paced: $(READY)
	@$(PY) -m wukongs.bench paced --report build/paced

# About four minutes: 1 M nodes, 6.4 M edges.
bench-interactive: $(READY)
	@$(PY) -m wukongs.bench interactive

bench-nodes: $(READY)
	@$(PY) -m wukongs.bench lsbench --experiment nodes --nodes 1,2,4,8 --report build/nodes

# Three nodes with data folders at 50,000 tuples a second; sampled and drawn into build/soak/.
soak-cluster: MINUTES ?= 60
soak-cluster: $(READY)
	@$(PY) -m wukongs.bench nodes-soak --minutes $(MINUTES) --report build/soak

# About five minutes: 20 M observations, memory sampled and drawn into build/soak/.
soak: $(READY)
	@$(PY) -m wukongs.bench.store.soak build/soak

# 1 K to 100 K users, and as many as fit; USERS=100000 for one number. The files go into a temporary folder.
scale: $(READY)
	@$(PY) -m wukongs.bench lsbench --experiment scale $(if $(USERS),--users $(USERS)) --report build/scale

lock:
	uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --all-extras pyproject.toml -o requirements.lock
	echo 'setuptools>=77' | uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --constraints requirements.lock pyproject.toml - -o requirements-image.lock
	echo uv | uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header - -o requirements-uv.lock

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache
