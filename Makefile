# Every target sets up its requirements: Java, then .venv. `make` alone lists the targets.

# The first Python on PATH that is recent enough.
NEW_ENOUGH := -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$p $(NEW_ENOUGH) && echo $$p && exit; done; echo python3)

VENV := .venv
PY := $(VENV)/bin/python
STAMP := $(VENV)/.installed
CLASSES := $(VENV)/spark-classes.jsa

KILLS ?= 20
BACKEND ?= filesystem
ENDS ?= files
EPOCHS ?= 5000
MUTATIONS ?= 10000
BASE ?= HEAD~1
LINE ?= keys-100000
PAIRS ?= 5

.PHONY: help install run test test-plain test-spark test-long coverage lint format bench bench-batch bench-state bench-savepoint bench-tables bench-query bench-io bench-service bench-web bench-scale bench-cluster bench-standbys bench-pairs chaos soak fuzz compatibility reference graph docs clean java browser

help:
	@echo 'make install   set up $(VENV), and Java if it is missing'
	@echo 'make run       run the demo'
	@echo 'make test      run the tests; ARGS="-k name" is passed to pytest'
	@echo 'make test-long run the tests that take long or kill processes'
	@echo 'make coverage  run the tests that need no JVM and report code coverage'
	@echo 'make lint      check style, types, import layers and prose'
	@echo 'make format    format the code'
	@echo 'make bench     run the benchmark; CHECK=1 passes --check'
	@echo 'make bench-batch  compare a bounded job as a batch and as a stream'
	@echo 'make bench-state  measure the cost of growing state: ten million keys, recovery, memory'
	@echo 'make bench-savepoint  measure the cost of savepoints and rescaling for a running job'
	@echo 'make bench-tables  read a million keys into pandas and Arrow'
	@echo 'make bench-query  read the state of a running job with a million keys through the proxy; ARGS="--backend rocksdb"'
	@echo 'make chaos     kill and damage a running job, with SERVICE=1 a cluster, with QUERY=1 the servers of its state, and check the results; KILLS=20 SEED=7 BACKEND=filesystem ENDS=files'
	@echo 'make soak      run a job for many short epochs and check that memory and disk use do not grow; EPOCHS=5000 CHECK=1'
	@echo 'make bench-io  measure the cost of file and PostgreSQL sinks'
	@echo 'make bench-service  measure a service with 50 jobs that 200 clients poll'
	@echo 'make bench-web  measure the page in a browser: an overview of 500 jobs, and a job with 60 chains'
	@echo 'make bench-scale  measure how the cost of the driver grows with a job, without Spark'
	@echo 'make bench-cluster  compare the count on two executors with the count in one process, in interleaved pairs; PAIRS=5'
	@echo 'make bench-standbys  measure the first epochs after the loss of an executor, with and without standby replicas'
	@echo 'make bench-pairs  compare one line of the benchmark on two revisions; BASE=main~10 LINE=keys-100000 PAIRS=5'
	@echo 'make fuzz      damage a savepoint in many ways and check that each is rejected; MUTATIONS=10000'
	@echo 'make compatibility   regenerate docs/migrate/compatibility.md from PyFlink and the code'
	@echo 'make reference  write the settings, commands and errors in docs/reference from the code'
	@echo 'make graph     draw the imports between packages: docs/internals/import-graph.svg'
	@echo 'make docs      build the documentation site in build/site; warnings are errors'
	@echo 'make clean     remove $(VENV), caches and build output'

install: $(STAMP)

run: $(STAMP)
	@$(PY) -m penstock.cli.demo

# Run both lanes concurrently: JVM tests often wait. pytest exits with 5 if ARGS selects no tests of a lane.
test: $(STAMP)
	@$(MAKE) --no-print-directory -j2 --output-sync=target test-plain test-spark

# If the environment forbids bytecode files, every process started by a test would have to compile Penstock again.
test-plain test-spark test-long coverage: export PYTHONDONTWRITEBYTECODE =

test-plain: $(STAMP)
	$(PY) -m pytest -m 'not spark and not slow and not long' -p no:cacheprovider $(ARGS) || [ $$? -eq 5 ]

test-spark: $(CLASSES)
	$(PY) -m pytest -m 'spark and not slow and not long' -p no:cacheprovider $(ARGS) || [ $$? -eq 5 ]

test-long: $(CLASSES) | browser
	$(PY) -m pytest -m 'slow or long' -p no:cacheprovider $(ARGS) || [ $$? -eq 5 ]

coverage: $(STAMP)
	$(PY) -m coverage run -m pytest -m 'not spark and not slow and not long' -p no:cacheprovider $(ARGS)
	$(PY) -m coverage report --format=markdown --skip-covered --sort=cover
	@echo "Statements reached: $$($(PY) -m coverage report --format=total) %"

# The hook in .pre-commit-config.yaml runs this target.
lint: $(STAMP)
	$(PY) -m ruff check
	$(PY) -m ruff format --check
	$(PY) -m mypy
	$(VENV)/bin/lint-imports --no-logo
	$(PY) -m scripts.prose

format: $(STAMP)
	$(PY) -m ruff check --fix
	$(PY) -m ruff format

bench-state: $(STAMP)
	$(PY) -m bench.state $(if $(CHECK),--check)

bench-savepoint: $(STAMP)
	$(PY) -m bench.savepoint $(if $(CHECK),--check)

bench-batch: $(STAMP)
	$(PY) -m bench.batch $(if $(CHECK),--check)

bench-tables: $(STAMP)
	$(PY) -m bench.tables $(if $(CHECK),--check)

bench-query: $(STAMP)
	$(PY) -m bench.query $(if $(CHECK),--check) $(ARGS)

bench-io: $(STAMP)
	$(PY) -m bench.io $(if $(CHECK),--check)

bench-service: $(STAMP)
	$(PY) -m bench.service $(if $(CHECK),--check)

bench-web: $(STAMP) | browser
	$(PY) -m bench.web $(if $(CHECK),--check) $(ARGS)

bench-scale: $(STAMP)
	$(PY) -m bench.scale $(if $(CHECK),--check) $(ARGS)

bench-cluster: $(STAMP)
	$(PY) -m bench.cluster --pairs $(PAIRS) $(if $(CHECK),--check)

bench-standbys: $(STAMP)
	$(PY) -m bench.standbys $(if $(CHECK),--check) $(ARGS)

bench-pairs: $(STAMP)
	$(PY) -m bench.pairs --base $(BASE) --line $(LINE) --pairs $(PAIRS) $(if $(CHECK),--check)

bench: $(STAMP)
	$(PY) -m bench $(if $(CHECK),--check)

chaos: $(STAMP)
	$(PY) -m $(if $(SERVICE),chaos.service,$(if $(QUERY),chaos.query,chaos --backend $(BACKEND) --ends $(ENDS))) --kills $(KILLS) $(if $(SEED),--seed $(SEED)) $(ARGS)

soak: $(STAMP)
	$(PY) -m soak --epochs $(EPOCHS) $(if $(CHECK),--check) $(ARGS)

fuzz: $(STAMP)
	PENSTOCK_MUTATIONS=$(MUTATIONS) $(PY) -m pytest -p no:cacheprovider tests/tables/test_mutated_files.py

compatibility: $(STAMP)
	$(PY) -m scripts.compatibility

reference: $(STAMP)
	$(PY) -m scripts.reference

graph: $(STAMP)
	$(PY) -m scripts.import_graph

docs: $(STAMP)
	$(PY) -m sphinx -W --keep-going -q -j auto -b html docs build/site
	@$(PY) -m scripts.site_links build/site
	@echo 'Open build/site/index.html in a browser.'

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .coverage
	rm -rf spark-warehouse artifacts metastore_db derby.log
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

java:
	@sh scripts/java.sh

browser:
	@sh scripts/browser.sh

# See scripts/class_archive.py: creating it takes 40 s of CPU once, and saves 7 s for each JVM that tests start.
$(CLASSES): $(STAMP) scripts/class_archive.py
	@echo "Archiving Spark's classes in $@ (180 MB), so that JVMs start faster."
	@$(PY) -m scripts.class_archive $@ || echo 'No archive was created; the tests take longer without it.'

# Order-only: Java is checked each time, before any download, but does not trigger a reinstallation.
$(STAMP): pyproject.toml constraints.txt | java
	@$(PYTHON) $(NEW_ENOUGH) || { echo 'Penstock needs Python 3.11 or later; $(PYTHON) is older or missing.' \
		'If you have one, run: make install PYTHON=/path/to/python3' >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { echo '$(PYTHON) cannot create a virtual environment.' \
		'On Debian and Ubuntu run: sudo apt-get install -y python3-venv' >&2; exit 1; }
	@echo 'Setting up $(VENV): a download of about 630 MB, mostly PySpark, and 1.5 GB on disk. This takes a minute or more.'
	@$(PYTHON) -m venv $(VENV)
	@$(PY) -m pip install -q --no-input --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@
