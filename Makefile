# Every target sets up what it needs: Java, then .venv. `make` alone lists them.

# The first Python on PATH that is new enough.
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

.PHONY: help install run test test-plain test-spark test-long coverage lint format bench bench-batch bench-state bench-savepoint bench-tables bench-io bench-pairs chaos soak fuzz compatibility reference graph docs clean java browser

help:
	@echo 'make install   set up $(VENV) (and Java, where it is missing)'
	@echo 'make run       run the demo'
	@echo 'make test      run the tests; ARGS="-k name" goes to pytest'
	@echo 'make test-long run the tests that take long or kill processes'
	@echo 'make coverage  run the tests that need no JVM, and say how much of the code they reach'
	@echo 'make lint      check style, types and the layers of imports'
	@echo 'make format    rewrite the code in our style'
	@echo 'make bench     run the benchmarks; CHECK=1 passes --check'
	@echo 'make bench-batch  one bounded job as a batch and as a stream'
	@echo 'make bench-state  what state costs as it grows: ten million keys, recoveries, memory'
	@echo 'make bench-savepoint  what savepoints and rescaling cost a running job'
	@echo 'make bench-tables  a million keys to pandas and Arrow'
	@echo 'make chaos     kill and damage a running job, check what it gives; KILLS=20 SEED=7 BACKEND=filesystem ENDS=files'
	@echo 'make soak      run a job for many short epochs, see that no memory or disk use grows; EPOCHS=5000 CHECK=1'
	@echo 'make bench-io  what files and PostgreSQL as sinks cost a job'
	@echo 'make bench-pairs  one line of the benchmark on two revisions, interleaved; BASE=main~10 LINE=keys-100000 PAIRS=5'
	@echo 'make fuzz      damage a savepoint in many ways, see that each is refused; MUTATIONS=10000'
	@echo 'make compatibility   write docs/migrate/compatibility.md anew from PyFlink and this code'
	@echo 'make reference  write the settings, commands and errors in docs/reference from the code'
	@echo 'make graph     draw how the packages import each other, layer by layer: docs/internals/import-graph.svg'
	@echo 'make docs      build the documentation site in build/site; warnings are errors'
	@echo 'make clean     remove $(VENV), caches and build output'

install: $(STAMP)

run: $(STAMP)
	@$(PY) -m penstock.cli.demo

# Two lanes at a time: what needs a JVM often waits. pytest exits with 5 where ARGS chose none of a lane's tests.
test: $(STAMP)
	@$(MAKE) --no-print-directory -j2 --output-sync=target test-plain test-spark

# Where the environment forbids to keep what is compiled, every process that a test starts would compile Penstock anew.
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

bench-io: $(STAMP)
	$(PY) -m bench.io $(if $(CHECK),--check)

bench-pairs: $(STAMP)
	$(PY) -m bench.pairs --base $(BASE) --line $(LINE) --pairs $(PAIRS) $(if $(CHECK),--check)

bench: $(STAMP)
	$(PY) -m bench $(if $(CHECK),--check)

chaos: $(STAMP)
	$(PY) -m chaos --kills $(KILLS) --backend $(BACKEND) --ends $(ENDS) $(if $(SEED),--seed $(SEED)) $(ARGS)

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

# See scripts/class_archive.py: made once, 40 s of CPU, and 7 s less for each of the JVMs that tests start.
$(CLASSES): $(STAMP) scripts/class_archive.py
	@echo "Keeping Spark's classes in $@: 180 MB on disk."
	@$(PY) -m scripts.class_archive $@ || echo 'Not kept; the tests take longer without.'

# Order-only: Java is looked for each time, and before any download, but is no reason to install again.
$(STAMP): pyproject.toml constraints.txt | java
	@$(PYTHON) $(NEW_ENOUGH) || { echo 'Penstock needs Python 3.11 or later; $(PYTHON) is older or missing.' \
		'If you have one, run: make install PYTHON=/path/to/python3' >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { echo '$(PYTHON) cannot make a virtual environment.' \
		'On Debian and Ubuntu run: sudo apt-get install -y python3-venv' >&2; exit 1; }
	@echo 'Setting up $(VENV): a download of about 630 MB, mostly PySpark, and 1 GB on disk. This takes a minute or more.'
	@$(PYTHON) -m venv $(VENV)
	@$(PY) -m pip install -q --no-input --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@
