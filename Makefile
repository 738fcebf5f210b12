SHELL := /bin/sh
PY := .venv/bin/python
KINGDOM := .venv/bin/kingdom
# More than the cores: many tests wait for something most of the time.
WORKERS ?= 6
# Beside tests/faults, what has a long size under KINGDOM_CAMPAIGN.
LONG := tests/journey tests/hall/gateway/test_loads.py tests/court/steward/test_role_script.py
SLOW := journey faults outside web distributed contracts mq cli demo/test_demo.py hall/gateway hall/worker hall/cli hall/channel hall/test_backup_hall.py \
	council/monitor council/cli council/test_general.py council/mime/test_program.py council/mime/test_protocol.py \
	base/runtime/test_role.py court/soldiers/test_workspace.py \
	$(addprefix court/,steward general sentinel envoy connections upkeep chamberlain) \
	test_docs.py test_run.py
# What has a target of its own, below.
ELSEWHERE := distributed outside web

# As it was typed: make takes text apart at blanks and replaces what follows a dollar sign.
ifdef HOME_DIR
export KINGDOM_HOME := $(value HOME_DIR)
endif

.PHONY: help setup up demo down status attach logs test check check-style check-types check-tests web-test \
	test-machines test-outside test-distributed test-roots faults faults-as-user test-as-user soak faults-quick bench \
	bench-quick docs clean
.DEFAULT_GOAL := help
# pytest keeps the asserts that it has rewritten, also where the shell says otherwise.
unexport PYTHONDONTWRITEBYTECODE

help: ## this list
	@sed -n 's/^\([a-z-]*\):[^#]*## /\1\t/p' Makefile | awk -F'\t' '{ printf "make %-17s %s\n", $$1, $$2 }'

setup: ## .venv from the locks, with what tests need, and tmux, strace, jq where allowed
	@bin/setup dev

up: ## set up if needed and start the kingdom [HOME_DIR=/opt/kingdom]
	@bin/setup run
	@$(KINGDOM) up

demo: ## see it all at work for a minute, without any account
	@bin/setup run
	@$(KINGDOM) demo

down: installed ## stop every role [HOME_DIR=]
	@$(KINGDOM) down

status: installed ## what runs, waits and fails [HOME_DIR=]
	@$(KINGDOM) status

attach: installed ## look at a role's terminal: ROLE=king
	@[ -n "$$ROLE" ] || { echo 'attach: which role? make attach ROLE=king' >&2; exit 2; }
	@$(KINGDOM) attach "$$ROLE"

logs: installed ## follow the logs [ROLE=king]
	@if [ -n "$$ROLE" ]; then exec $(KINGDOM) logs --follow "$$ROLE"; else exec $(KINGDOM) logs --follow; fi

.PHONY: installed
installed:
	@[ -x $(KINGDOM) ] || { echo 'nothing is set up here yet: make up' >&2; exit 1; }

test: ## the whole quick suite; a test that fails is run five times more, alone, and fails the run all the same
	@began=$$(date +%s); bin/setup dev && echo "SET-UP: $$(($$(date +%s) - began)) s"
	@exec $(PY) -m tests.run -n $(WORKERS) --dist worksteal $(ELSEWHERE:%=--ignore=tests/%)

check: ## style, types, house rules and the fast tests: before every commit
	@bin/setup dev
	@$(MAKE) --no-print-directory --keep-going --jobs=2 --output-sync=target check-types check-style check-tests

check-style:
	@.venv/bin/ruff check --quiet .
	@.venv/bin/ruff format --check --quiet . || { .venv/bin/ruff format --check .; exit 1; }

check-types:
	@.venv/bin/mypy

check-tests:
	@$(PY) -m pytest -q -n 2 $(SLOW:%=--ignore=tests/%)

test-machines: ## the README's commands as on older kernels and in containers [TESTS=1: make test there too]
	@exec tests/machines/run.sh $${TESTS:+test}

web-test: ## the page of the hall in a real browser
	@bin/setup web
	@tests/web/install.sh
	@exec $(PY) -m tests.run -q -n 2 --dist loadfile tests/web

test-outside: ## the engines' real programs, from npm, against models played on loopback
	@bin/setup dev
	@tests/outside/install.sh
	@exec $(PY) -m tests.run -q -n 2 -o faulthandler_timeout=0 tests/outside

test-distributed: ## the hall on Kafka and PostgreSQL
	@bin/setup distributed
	@if [ -d tests/distributed ]; then exec $(PY) -m tests.run tests/distributed; else echo 'no hall yet: nothing to test'; fi

test-roots: ## README's commands on other distributions; needs root [ROOTS="bookworm trixie sid" QUICK=1: without the tests]
	@bin/setup roots
	@exec $(PY) -m tests.roots $(ROOTS)

faults: export KINGDOM_CAMPAIGN = 1
faults: ## the long fault campaigns [MUTANTS=1: every check must catch its defect; ONLY=slack] [MUTANTS=random COUNT=20 SEED=1 ROOM=court/king]
	@bin/setup dev
	@case "$$MUTANTS" in \
	1) exec env -u KINGDOM_CAMPAIGN $(PY) -m tests.faults.mutants ;; \
	random) exec env -u KINGDOM_CAMPAIGN $(PY) -m tests.faults.drawn ;; \
	*) $(PY) -m pytest -o faulthandler_timeout=0 tests/faults $(LONG) && if [ "$$(id -u)" = 0 ]; then $(MAKE) faults-as-user; fi ;; \
	esac

faults-as-user: export KINGDOM_CAMPAIGN = 1
faults-as-user: ## the checks of the sandbox as a user without root and control groups [CHECKS=tests/faults/sandbox]; needs root
	@bin/setup dev
	@exec tests/faults/as_user.sh -q $${CHECKS:-tests/faults/sandbox}

test-as-user: ## the quick suite as a user without root, tmux, strace and jq; needs root [CHECKS=tests/cli]
	@bin/setup dev
	@WITHOUT='tmux strace jq' exec tests/faults/as_user.sh -q -n $(WORKERS) --dist worksteal \
		$${CHECKS:-tests $(ELSEWHERE:%=--ignore=tests/%)}

soak: ## everything at once, at random, in a kingdom at work [MINUTES=15 LAUNCHER=tmux SEED=]
	@bin/setup dev
	@exec $(PY) -m tests.faults.soak $${MINUTES:+--minutes "$$MINUTES"} $${LAUNCHER:+--launcher "$$LAUNCHER"} $${SEED:+--seed "$$SEED"}

faults-quick: ## the quick fault checks
	@bin/setup dev
	@if [ -d tests/faults ]; then exec $(PY) -m pytest tests/faults; else echo 'no fault checks yet: nothing to test'; fi

.PHONY: faults-slow quiet-hour
faults-slow: export KINGDOM_TIMERS = 1
faults-slow: ## every timer waited for at its shipped value, all kinds of connections held; 55 minutes [MINUTES=50, a quiet hour]
	@bin/setup web
	@exec $(PY) -m pytest -v -n 10 --dist worksteal -o faulthandler_timeout=0 tests/faults/timers

quiet-hour: ## people in browsers and with stock clients in a room of the hall: drops, flaps, losses [MINUTES=60]
	@bin/setup web
	@exec $(PY) -m tests.faults.timers.quiet_hour

bench: ## every figure: bench/results.json and docs/benchmarks.md
	@bin/setup dev
	@if [ -d bench ]; then exec $(PY) -m bench; else echo 'no bench yet: nothing to measure'; fi

bench-quick: ## rough figures in a minute or two, for development
	@bin/setup dev
	@if [ -d bench ]; then exec $(PY) -m bench --quick; else echo 'no bench yet: nothing to measure'; fi

docs: ## docs/reference/ from the code, and all documents as a site in build/site
	@bin/setup dev
	@$(PY) bin/reference
	@rm -rf build/site-source && mkdir -p build/site-source
	@cp -R README.md README.ko.md CONTRIBUTING.md CHANGELOG.md SECURITY.md LICENSE Containerfile docs deploy schemas build/site-source
	@.venv/bin/mkdocs build --quiet --clean -f docs/site.yml && echo 'build/site/index.html'

clean: ## remove caches and build products; never queue/, state/ or .venv
	@rm -rf build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
	@find . -name __pycache__ -type d -not -path './.venv/*' -prune -exec rm -rf {} +
