# Everything runs out of .venv; each target does its own set-up: the broker alone for `make up`, all else for the rest.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
BROKER := $(VENV)/.ready
SPARK := $(VENV)/.ready-for-spark
EVERYTHING := $(VENV)/.ready-for-tests
COMPILED := $(VENV)/.compiled
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check
# Installations are editable, and use what is compiled in build/.
INSTALL := MOLDAU_COMPILE=0 $(PIP) install --editable
COMPILE := $(PIP) wheel --no-deps --wheel-dir build/wheel .

# Tests wait often: on two cores four processes are needed to keep these busy. Each takes a gigabyte with what it starts, and
# those with Spark two.
WORKERS ?= 4

# The first run has hot modules as Python in the process of the tests, and compiled in brokers. These run the other way as
# well: properties and hostile bytes on compiled modules, and raw requests to brokers that are all Python.
HOT_TESTS := tests/properties/test_hot_oracles.py tests/properties/test_log_index.py tests/properties/test_log_producers.py \
  tests/properties/test_log_recovery.py tests/properties/test_log_transactions.py tests/unit/wire/test_codec.py \
  tests/unit/wire/test_frames.py tests/unit/wire/test_headers.py tests/unit/wire/test_hostile_messages.py tests/unit/wire/test_records.py \
  tests/clients/test_protocol_produce.py tests/clients/test_protocol_fetch.py tests/clients/test_hostile.py \
  tests/clients/test_hot_modules.py

# Or a while after the first result: make demo DEMO_SECONDS=20
DEMO_SECONDS ?=

.PHONY: up demo setup compile test check docs bench exactly-once storm spark spark-faults soak apache chaos simulate clean

# The first start does not wait for the compiler: Ctrl-C stops the broker, and compiling goes on for the next start.
up: $(BROKER)
	@test -e $(COMPILED) || test "$$MOLDAU_COMPILE" = 0 || { \
	  echo "The broker starts as Python. Its hot modules are compiled meanwhile, for the next start (a minute or two; build/compile.log) …"; \
	  mkdir -p build; nice $(COMPILE) >build/compile.log 2>&1 && touch $(COMPILED) & }
	@exec $(BIN)/moldau up --dir ./data --listen localhost:9092

demo: $(SPARK)
	@exec $(BIN)/python -m demo $(if $(DEMO_SECONDS),--seconds $(DEMO_SECONDS))

setup: $(EVERYTHING)

$(BROKER): pyproject.toml hatch_build.py
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Moldau needs Python 3.11 or later; name one with: make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || { echo "Python's venv module is missing; on Debian and Ubuntu: apt-get install python3-venv"; rm -rf $(VENV); exit 1; }
	@echo "Setting up $(VENV) (once) …"
	@$(INSTALL) .
	@touch $@

$(SPARK): $(BROKER)
	@echo "Adding Spark (once, about a minute and 0.9 GB) …"
	@$(INSTALL) '.[spark]'
	@touch $@

$(EVERYTHING): $(BROKER)
	@echo "Adding Spark and what the tests need (once, about a minute and 1 GB) …"
	@$(INSTALL) '.[dev,spark]'
	@touch $(SPARK) $@

# The sources as they are now, compiled; `make up` alone runs what was edited since as Python, and says so.
compile: $(COMPILED)

$(COMPILED): $(BROKER) $(shell find src/moldau -name '*.py')
	@echo "Compiling the hot modules (a minute or two) …"
	@$(COMPILE)
	@$(BIN)/moldau --version
	@touch $@

test: setup
	@$(MAKE) --no-print-directory -j2 compile check
	@$(BIN)/python -m tests.support.rerun tests -n $(WORKERS)
	@echo "Once more: hot modules compiled in the tests' own process, and as Python in brokers …"
	@MOLDAU_TEST_SWAPPED=1 $(BIN)/python -m tests.support.rerun $(HOT_TESTS) -n $(WORKERS)

check: setup
	@$(BIN)/ruff check src tests benchmarks chaos demo examples
	@$(BIN)/ruff format --check src tests benchmarks chaos demo examples
	@$(BIN)/mypy

exactly-once: setup
	@MOLDAU_FULL=1 $(BIN)/python -m pytest tests/clients/test_exactly_once.py \
	  tests/clients/test_client_exactly_once.py -s --timeout 3600

storm: setup
	@MOLDAU_FULL=1 $(BIN)/python -m pytest tests/clients/test_storm.py -s --timeout 600

spark-faults: setup
	@MOLDAU_FULL=1 $(BIN)/python -m pytest tests/spark/test_faults.py tests/spark/test_pipeline_status.py -s --timeout 3600

spark: setup
	@MOLDAU_FULL=1 $(BIN)/python -m pytest tests/spark --timeout 1800

soak: setup
	@MOLDAU_FULL=1 $(BIN)/python -m pytest tests/properties/test_power_cuts.py tests/clients/test_kills.py \
	  tests/clients/test_client_rebalance.py tests/clients/test_client_retries.py tests/clients/test_hostile.py \
	  tests/clients/test_logins.py tests/cluster/test_client_leaders.py tests/cluster/test_rolling_switch.py \
	  -n 2 --timeout 3600

apache: setup
	@MOLDAU_TEST_BROKER=apache $(BIN)/python -m pytest tests/clients/test_client_*.py tests/services/test_registry_*.py -n 2 --timeout 600

docs: setup
	@$(BIN)/python -m moldau.broker.settings > docs/settings.md
	@MOLDAU_COMPILE=0 $(BIN)/python -m moldau.broker.protocol_page > docs/protocol.md  # compiled modules have no docstrings
	@PYTHONPATH=tests $(BIN)/python -m support.file_map > docs/files.md
	@PYTHONPATH=tests $(BIN)/python -m support.rules_page > docs/compatibility.md

bench: setup compile
	@$(BIN)/python -m benchmarks $(ARGS)
	@$(if $(ARGS),,$(BIN)/python -m benchmarks security)
	@$(if $(ARGS),,$(BIN)/python -m benchmarks cluster)

chaos: setup
	@$(BIN)/python -m chaos $(ARGS)

simulate: setup
	@$(BIN)/python -m chaos simulate $(ARGS)

clean:
	rm -rf $(VENV) build .pytest_cache .mypy_cache .ruff_cache .hypothesis
