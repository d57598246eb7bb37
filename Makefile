# Everything a contributor runs. `make` lists it.
PYTHON ?= python3
BIN := .venv/bin
SEED ?=
SCRIPTS ?= 40
WORKERS ?= 4

.DEFAULT_GOAL := help

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

install: .venv/installed ## Make .venv with everything

PIP_INSTALL = $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable

.venv/bin/pip:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or later is needed; PYTHON=… names another")'
	$(PYTHON) -m venv .venv

.venv/up-installed: pyproject.toml constraints.txt | .venv/bin/pip
	$(PIP_INSTALL) '.[up]'
	@touch $@

.venv/installed: pyproject.toml constraints.txt | .venv/bin/pip
	$(PIP_INSTALL) '.[dev]'
	@touch .venv/up-installed $@

up: .venv/up-installed ## Run the whole stack on this machine: http://127.0.0.1:8080; ARGS="--gateway-port 18080" and others
	$(BIN)/sharequeue up $(ARGS)

# One happy and one crashed path each through Spark, processes and a cluster, then the folders that are quick. What takes longest begins first.
SLICE = tests/pipeline/test_smoke.py::test_available_now_reads_and_accepts_every_record_once \
	tests/pipeline/test_smoke.py::test_a_restart_within_the_lock_duration_reads_every_record_once \
	tests/system/test_readme.py \
	tests/cluster/test_any_gateway.py::test_each_record_goes_to_one_of_the_clients_of_all_gateways \
	tests/cluster/test_hand_over.py::test_holders_settle_their_records_when_their_leader_is_gone
TEST = $(SLICE) tests/http tests/storage tests/shell tests/core tests/shown tests/sharequeue_http $(slow:%=--ignore=%) $(edge:%=--ignore=%)
# Shards of `make test-all`, the longest first: each runs alone. `slow`: the modules of the quick folders that take longest.
pipeline = tests/pipeline
processes = tests/system tests/packages tests/traces
cluster = tests/cluster tests/chaos
hostile = tests/hostile $(edge)
edge = $(addprefix tests/sharequeue_http/test_,connection_limits.py framing.py tls.py untidy_clients.py workers.py)
scenarios = $(addprefix tests/system/test_,readiness.py switch_over.py unloaded_while_writing.py)
slow = $(addprefix tests/storage/test_,compressed_batches.py group_resets.py large_ends.py large_snapshots.py last_stable_offset.py \
	many_locks.py migrations.py open_dead_letters.py ownership.py paged_reads.py query_plans.py \
	readers_interleaved.py redis_away.py retaining.py share_state_faults.py silent_postgres.py transaction_model.py \
	transaction_parts.py transaction_plans.py transaction_races.py transactions.py wide_topics.py) \
	$(addprefix tests/http/test_,backlog_metrics.py client_losses.py client_membership.py coordinators.py crowding.py dead_letter_choice.py fair_turns.py group_faults.py \
	in_flight_pages.py isolation_levels.py limits.py lock_lengths.py look_up.py metrics.py other_systems.py readers.py reading_on.py \
	scheduled.py share_partition_limit.py state_faults.py streams.py wide_topics.py worker.py) \
	$(addprefix tests/http/cli/test_,consuming.py group_administration.py producing.py)
SHARDS ?= pipeline processes slow cluster hostile
PYTEST = $(BIN)/pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder

.PHONY: help install up test test-all $(addprefix test-,$(SHARDS)) steady test-one-process test-stores check format migrate bench spark-bench soak mutants fuzz lint-document renew-document sdks smoke kafka-test kafka-log-test older-kafka-test kafka-groups-test monitoring-test proxy-test traefik-test browser-test pictures hostile spark-versions nightly compose-test site release example clean

test: install ## What a newcomer runs: the rules, the HTTP contract, the stores, and one path each through Spark, processes and a cluster
	$(PYTEST) $(TEST)

test-all: install ## All other tests, two shards at a time; `make test-all SHARDS=cluster` runs one
	$(MAKE) --jobs 2 --keep-going $(addprefix test-,$(SHARDS))

test-pipeline: WORKERS = 2
$(addprefix test-,$(SHARDS)): test-%: install
	$(PYTEST) $($*) $(SLICE:%=--deselect=%)

steady: install ## `make test` ten times and `make test-all` three times, every second run beside a load on all cores
	$(BIN)/python -m tests.steady

test-one-process: install ## The tests of the HTTP contract and the scenarios without kills, on the one process of `sharequeue up`
	ONE_PROCESS=1 $(PYTEST) tests/http $(scenarios)

test-stores: install ## The tests of the stores on PostgreSQL 16 and Redis 7, and on Valkey 8; both over TLS
	$(BIN)/python -m tests.stores -n $(WORKERS) --dist loadfile

check: install ## Formatting, lint, types, import rules
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: install ## Format the code
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

migrate: .venv/up-installed ## Bring the database at DATABASE_URL up to date
	$(BIN)/sharequeue migrate

bench: install ## Compare with Redis Streams, and PGMQ when PGMQ_SQL names its install script
	$(BIN)/python -m bench $(if $(PGMQ_SQL),--pgmq $(PGMQ_SQL))

spark-bench: install ## Spark here beside Spark on a real Kafka broker and on Parquet, in one session; needs Java 17 with Maven
	$(BIN)/python -m bench.spark

soak: install ## Long seeded runs: crashes under load, the state machine against its model
	SOAK=1 SEED=$(SEED) $(BIN)/pytest -m soak
	SOAK=1 SEED=$(SEED) $(BIN)/pytest -n $(WORKERS) --dist loadfile -m "not soak" tests/core

mutants: install ## Plant one fault at a time in the rules; each must be caught
	$(BIN)/python -m tests.mutants

lint-document: install ## The OpenAPI document before Redocly and Spectral (Node.js 20)
	$(BIN)/python -m tests.openapi

renew-document: install ## Write the OpenAPI document's examples, page and snapshot again, the tables of docs/, Admin and the sync client, after a change that is meant
	$(BIN)/python -m docs.reference
	$(BIN)/python -m docs.admin_client
	$(BIN)/python -m docs.sync_client
	RENEW_OPENAPI=1 $(BIN)/pytest -q tests/http/test_examples.py
	RENEW_OPENAPI=1 $(BIN)/pytest -q tests/core/test_document.py tests/http/test_openapi.py -k "page or snapshot"

sdks: install ## Generate clients in several languages, compile them, and play one contract suite with each
	$(BIN)/python -m tests.sdks

smoke: install ## One short run each of what needs Go, Node.js, Maven, Chromium or nginx
	$(BIN)/python -m tests.smoke

kafka-test: install ## The same random scripts of transactions on a real Kafka broker and here; needs Java 17 with Maven
	$(BIN)/python -m tests.kafka --scripts $(SCRIPTS) $(if $(SEED),--seed $(SEED))

kafka-log-test: ON_KAFKA = $(addprefix http/test_,fetch_and_acknowledge backoff acknowledgements reading_on priority dead_letters produce) system/test_locks_outlive_a_crash
kafka-log-test: install ## The client of Kafka and the log in Kafka on real brokers; needs Java 17 with Maven
	$(BIN)/pytest -q tests/kafka_log -m "not soak"
	KAFKA_LOG=1 $(BIN)/pytest -q $(ON_KAFKA:%=tests/%.py)

older-kafka-test: install ## The same as `make kafka-log-test` on brokers of Kafka 3.9, which have no share groups
	SHAREQUEUE_TEST_KAFKA_VERSION=3.9.1 $(MAKE) kafka-log-test

kafka-groups-test: install ## The same random scripts by share groups of a real Kafka broker and by ours, on the same topics; needs Java 17 with Maven
	$(BIN)/python -m tests.kafka --record-log kafka --scripts $(SCRIPTS) $(if $(SEED),--seed $(SEED))

monitoring-test: install ## The alerts and the board of monitoring/ with promtool and a real Prometheus (Debian's package)
	$(BIN)/python -m tests.monitoring

proxy-test: install ## The nginx configuration of docs/proxy.md in a real nginx before a stack (Debian's package)
	$(BIN)/python -m tests.proxy

traefik-test: install ## The Traefik configuration of docs/proxy.md in a real Traefik, which Go builds once (Go 1.26)
	$(BIN)/python -m tests.proxy.traefik

browser-test: install ## The pages of a gateway in a real Chromium (Debian's package)
	$(BIN)/python -m tests.browser

pictures: install ## The pictures of /ui in README.md and docs/ui.md, from a real stack in Chromium
	$(BIN)/python -m tests.browser.pictures

fuzz: install ## Call the HTTP API as its OpenAPI document allows, and as it does not, on a stack of its own
	SEED=$(SEED) $(BIN)/python -m tests.fuzz

hostile: install ## Requests as large as the limits allow: CPU, stops of the event loop, memory
	$(BIN)/python -m bench.hostile

spark-versions: install ## Tests of the pipeline on older versions of Spark
	$(BIN)/python -m tests.pipeline.versions

nightly: SCRIPTS = 300
nightly: soak test-one-process mutants fuzz hostile spark-versions kafka-test kafka-groups-test older-kafka-test sdks lint-document monitoring-test proxy-test traefik-test browser-test test-stores site steady ## What takes hours, in order; `SEED=7 make -k nightly` goes on after a failure

compose-test: install ## Bring docker-compose.yml up on a real engine, use it, break it, take it down
	tests/compose/run

.venv/site-installed: pyproject.toml constraints.txt | .venv/bin/pip
	$(PIP_INSTALL) '.[site]'
	@touch $@

site: .venv/site-installed ## Build the site of docs/ into dist/site; a link that leads nowhere fails
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

release: install ## Build wheel, sdist, packages of sdks/, image, bill of materials and checksums of the tag of this version (ADDRESS=https://… of the repository)
	$(BIN)/python -m docs.release --address "$(ADDRESS)" --extras "$(EXTRAS)"

example: install ## All flights of 2013 through the stack that `make up` runs (URL=… names another)
	$(BIN)/python examples/flights.py --url "$(or $(URL),http://127.0.0.1:8080)"

clean: ## Remove what was made: .venv, caches, the stack's data
	@home="$$(readlink .sharequeue/postgresql)"; case "$$home" in /var/lib/sharequeue/*/postgresql) rm -rf "$${home%/postgresql}";; esac
	rm -rf .venv .sharequeue .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache dist
