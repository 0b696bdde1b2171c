# `make` shows the targets; `make test` is what CI runs.
.DEFAULT_GOAL := help
SHELL := /bin/bash
PY := .venv/bin/python
JOBS ?= 3
.PHONY: quick test-pythons torture-seed help setup components clients lint types imports check test demo bench mutants torture clean bench-ledger bench-pages bench-scaleout screenshots bench-million docs dist recording

help:  ## this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 20

.venv/.done: requirements/dev.txt pyproject.toml
	@scripts/make-venv.sh
	@touch $@

setup: .venv/.done  ## virtual environment with everything pinned

components: setup  ## PostgreSQL, nginx, qBittorrent, Chromium, strace … from the system's packages
	@scripts/components.sh

lint: setup  ## formatting and lint
	@.venv/bin/ruff format --check -q . && .venv/bin/ruff check -q .

types: setup  ## mypy strict
	@$(PY) -m mypy --no-error-summary

imports: setup  ## imports point down
	@PYTHONPATH=src .venv/bin/lint-imports --no-cache >/tmp/longshore-imports.$$$$ 2>&1 || { cat /tmp/longshore-imports.$$$$; rm -f /tmp/longshore-imports.$$$$; exit 1; }; rm -f /tmp/longshore-imports.$$$$

check: lint types imports  ## all static checks

quick: setup  ## domain, lists, config, ledger on SQLite and the command line; needs no servers
	@$(PY) -m pytest -n $(JOBS) --dist worksteal -m "not torture and not servers and not slow" tests/domain tests/lists tests/config tests/ledger tests/cli

test-pythons: setup  ## the suite without servers on every Python from 3.11 on: installed ones, and Debian's newer ones
	@scripts/test-pythons.sh trixie sid

test: setup components check  ## everything CI runs
	@$(PY) -m pytest -n $(JOBS) --dist worksteal -m "not torture"

ROWS ?= 300000
bench-ledger: setup  ## how fast the ledger is (ROWS=3000000 for the big table)
	@PYTHONPATH=src:. $(PY) -m bench.ledger $(PARTS) --rows $(ROWS)

demo: setup  ## the main job, on loopback, with a kill -9 in the middle
	@$(PY) scripts/demo.py

bench: setup  ## every peer and us side by side; BENCH="small large" for some sets
	@$(PY) -m bench $(BENCH)

mutants: setup components  ## put known defects back: the suite must go red for each
	@$(PY) -m scripts.mutants

clients:  ## newer qBittorrents (5.1 and the newest) from Debian's newer suites, unpacked beside the system's
	@scripts/qbittorrent.sh trixie sid

torture: setup components clients  ## the long crash and fault suite; writes the matrix of docs/proof.md
	@rm -rf build/matrix
	@export LONGSHORE_MATRIX=build/matrix; $(PY) -m pytest tests/torture/test_matrix.py -m "not torture" -n $(JOBS) && \
	  $(PY) -m pytest -n $(JOBS) --dist worksteal -m torture; code=$$?; $(PY) -m scripts.matrix build/matrix && exit $$code

# `make torture-seed 7`, `make torture-seed N=7` and `make torture-seed SEED=7` are the same.
ifeq (torture-seed,$(firstword $(MAKECMDGOALS)))
SEED ?= $(or $(N),$(word 2,$(MAKECMDGOALS)),1)
REST := $(wordlist 2,$(words $(MAKECMDGOALS)),$(MAKECMDGOALS))
ifneq ($(REST),)
.PHONY: $(REST)
$(REST): ; @:
endif
endif
torture-seed: setup  ## repeat one soak's faults: `make torture-seed 7` (SOAK="--long --postgres")
	@PYTHONPATH=src:. $(PY) -m tests.torture.soak $(SEED) $(SOAK)

clean:  ## remove what make made
	rm -rf .venv .venv-docs build dist src/*.egg-info

dist: setup  ## sdist and wheel, to dist/; each is installed into a bare environment and types the tutorial
	@PYTHONPATH=src:. $(PY) -m scripts.dist

docs: setup  ## the documentation as a site, to build/site; dead links, pages without a place and foreign hosts fail it
	@scripts/make-docs.sh

screenshots: setup components  ## every page of the dashboard in both themes, to docs/images
	@PYTHONPATH=src:. $(PY) -m scripts.screenshots

recording: setup  ## a real session with a kill -9 in the middle, to docs/images/session.cast and session.svg
	@PYTHONPATH=src:. $(PY) -m scripts.record_terminal

bench-scaleout: setup components  ## 1 to 8 workers on PostgreSQL (0, 2, 10 ms away) and S3
	@PYTHONPATH=src:. $(PY) -m bench.scaleout

bench-pages: setup  ## every page with 10,000 and 1,000,000 jobs
	@PYTHONPATH=src:. $(PY) -m bench.pages

bench-million: setup  ## a million URLs planned, ten thousand of them run: the worker's peak memory
	@PYTHONPATH=src $(PY) -m bench.million
