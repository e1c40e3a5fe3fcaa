# Everything a contributor needs; `make` alone lists it. Needs python3 (3.11 or newer), git and make.

PYTHON ?= python3
PY := .venv/bin/python
READY := .venv/.ready

.DEFAULT_GOAL := help
.PHONY: help setup browser servers demo demo-full test test-fast test-pythons test-all screenshots conformance cases bench bench-peers chaos chaos-peers soak simulate fuzz fuzz-api fuzz-coverage mutants mutants-coverage scan reference docs lint types fmt ci clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sort | awk -F ':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

setup: $(READY) ## make .venv with Holdfast and all that its tests need
$(READY): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit("Holdfast needs Python 3.11 or newer: make setup PYTHON=python3.12" if sys.version_info < (3, 11) else 0)'
	@$(PYTHON) -m venv .venv
	@echo "installing into .venv ..."
	@$(PY) -m pip install --quiet --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

browser: ## install the Chromium that the browser tests use, where it is missing
	@$(PYTHON) tools/browser.py

servers: ## install PgBouncer and Redis for the tests that need them, where they are missing
	@$(PYTHON) -m tools.servers

screenshots: setup ## take pictures of the dashboard into docs/images
	@$(PY) -m tools.screenshots

demo: setup ## see it work
	@$(PY) examples/demo.py
	@$(PY) examples/extraction.py

demo-full: setup ## the same extraction with cdxgen (needs npm) and Semgrep, which it installs below .venv
	@# A place of its own: Semgrep wants other versions of what Holdfast stands on.
	@test -x .venv/tools/semgrep/bin/semgrep || { $(PYTHON) -m venv .venv/tools/semgrep && \
	  .venv/tools/semgrep/bin/python -m pip install --quiet --disable-pip-version-check semgrep; }
	@npm install --silent --no-fund --no-audit --prefix .venv/tools/cdxgen @cyclonedx/cdxgen
	@PATH="$(CURDIR)/.venv/tools/semgrep/bin:$(CURDIR)/.venv/tools/cdxgen/node_modules/.bin:$$PATH" $(PY) examples/extraction.py

# Many tests wait for processes: several at a time take half as long, also on two cores. A file stays together.
SIDE_BY_SIDE := --numprocesses 4 --dist loadfile

# The suite ends after so many seconds, and says what was running.
LIMITED := $(if $(LIMIT),--limit $(LIMIT))

test: lint types ## everything: lint, types, all tests on both databases, the list of cases
	@$(PY) tools/suite.py $(LIMITED)
	@$(PY) tools/cases.py

test-fast: setup ## for the inner loop: SQLite only, without browsers, whole programs and the slowest files
	@$(PY) tools/suite.py --fast $(LIMITED)

test-pythons: ## the whole suite on every Python that is found (PYTHONS='python3.12 python3.13', FAST=1)
	@PYTHONS="$(PYTHONS)" $(PYTHON) tools/pythons.py $(if $(FAST),--fast) $(LIMITED)

test-all: test ## also on Debian's PostgreSQL (15), and the conformance suite through PgBouncer
	@$(PY) tools/older_postgres.py
	@$(PY) -m pytest --quiet --store postgres --pooler tests/conformance --ignore tests/conformance/test_listen.py

conformance: setup ## one suite, both stores
	@$(PY) -m pytest --quiet tests/conformance $(SIDE_BY_SIDE)

cases: setup ## list the production cases that have no test yet
	@$(PY) tools/cases.py

bench: setup ## measure both stores beside the raw floor
	@$(PY) -m bench

bench-peers: setup ## measure the peers and Holdfast in one run (installs them; can be stopped and goes on)
	@$(PY) -m bench.peers --resume

chaos: setup ## kill, freeze and restart at random for some minutes, then check that nothing is lost or doubled
	@$(PY) -m tools.chaos

chaos-peers: setup ## the same faults at the same seconds against Holdfast, pgqueuer and procrastinate (installs them): SEED=7
	@$(PY) -m tools.chaos_peers $(if $(SEED),--seed $(SEED)) $(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(REPORT),--report)

soak: setup ## a steady rate for MINUTES=60 on STORE=postgres, with memory, files, dead rows and latency drawn: flat?
	@$(PY) -m tools.soak $(if $(MINUTES),--minutes $(MINUTES)) $(if $(STORE),--store $(STORE)) $(if $(REPORT),--report)

FUZZED := tests/unit/test_fuzz_values.py tests/unit/test_ticks.py tests/unit/extraction/test_advisory_hostile.py \
	tests/unit/extraction/test_advisory_ranges.py tests/unit/extraction/test_hostile_manifests.py
fuzz: setup ## the property tests with a hundred times as many examples
	@HOLDFAST_FUZZ_TIMES=100 $(PY) -m pytest --quiet $(FUZZED)

simulate: setup ## seeded schedules on a virtual clock: RUNS=100000 for a campaign, SEED=17 to replay one (STORE=postgres)
	@$(PY) -m tools.simulate $(if $(SEED),--seed $(SEED)) $(if $(RUNS),--runs $(RUNS)) $(if $(STORE),--store $(STORE))

fuzz-api: setup ## send a lot of generated requests to every route of the API, as every role, on both databases
	@HOLDFAST_FUZZ_EXAMPLES=200 HOLDFAST_FUZZ_STORE=sqlite $(PY) -m pytest --quiet tests/web/test_fuzz.py
	@HOLDFAST_FUZZ_EXAMPLES=200 HOLDFAST_FUZZ_STORE=postgres $(PY) -m pytest --quiet tests/web/test_fuzz.py

fuzz-coverage: setup ## inputs led by coverage through every reader of tests/fuzz for MINUTES=10 (installs atheris): READER=redact
	@$(PY) -m pip install --quiet --quiet --disable-pip-version-check --editable '.[fuzz]'
	@$(PY) -m tools.fuzz_coverage $(if $(MINUTES),--minutes $(MINUTES)) $(if $(READER),--reader $(READER))

MUTANTS := nice -n 10 $(PY) -m tools.mutants
MUTANTS_TESTS := $(filter-out tests/browser/ tests/fixtures/ tests/support/ tests/apps/,$(wildcard tests/*/))
mutants: setup ## break a sample of guards in a copy, one at a time: SEED=7 SAMPLE=300 PARALLEL=2 ONLY=src/holdfast/limits; can be stopped
	@test -e build/mutants/lines || $(MAKE) --no-print-directory mutants-coverage
	@$(MUTANTS) run --postgres $(if $(SEED),--seed $(SEED)) $(if $(SAMPLE),--sample $(SAMPLE)) \
	  $(if $(PARALLEL),--parallel $(PARALLEL)) $(foreach only,$(ONLY),--only $(only))

mutants-coverage: setup ## note which test runs which lines, for `make mutants`; slow (TESTS=tests/web notes these alone anew)
	@$(MUTANTS) collect $(if $(PARALLEL),--parallel $(PARALLEL)) $(or $(TESTS),$(MUTANTS_TESTS))

reference: setup ## write the pages of docs/reference that come out of the code
	@$(PY) -m tools.reference

docs: setup ## build the documentation into build/site; a broken link is an error
	@$(PY) -m pip install --quiet --quiet --disable-pip-version-check --editable '.[docs]'
	@NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --strict --quiet --site-dir build/site
	@echo "build/site is ready: $(PY) -m http.server --bind 127.0.0.1 --directory build/site"

scan: setup ## our own extraction over this repository; what it finds must be on tools/scan-allowed.toml
	@$(PY) -m tools.scan

lint: setup ## ruff
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check .

types: setup ## mypy --strict
	@$(PY) -m mypy

fmt: setup ## put the code into shape
	@$(PY) -m ruff check --fix --quiet .
	@$(PY) -m ruff format .

ci: test ## what the build server runs

clean: ## remove what was made, .venv included
	@rm -rf .venv build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
