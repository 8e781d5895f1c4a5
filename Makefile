# make demo     a fabric on this machine, faults, and what Foliot does about them
# make test     all tests
# make bench    NAME=road: Foliot measured, beside its peers where there are any
# make lint     ruff, mypy, import rules
# make clean    what the others made

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
MEMBERS := schemas sdk $(wildcard services/*) lab
MANIFESTS := $(addsuffix /pyproject.toml,$(MEMBERS))
ARGS ?=
NAME ?= road

.PHONY: demo test bench lint pins asyncapi clean

demo: $(VENV)/.run
	@$(BIN)/foliot lab demo $(ARGS)

test: $(VENV)/.dev
	$(BIN)/pytest $(ARGS)

bench: $(VENV)/.run
	@$(BIN)/python -m bench.$(NAME) $(ARGS)

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy $(wildcard schemas/foliot_* sdk/foliot services/*/foliot_* lab/foliot_*) bench
	$(BIN)/lint-imports

# Writes the hashed requirements from the *.in files. No lock file of uv's: it records where packages were fetched from.
pins: $(VENV)/bin/uv
	for set in setup run dev; do \
	  $(BIN)/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-header --no-emit-index-url \
	    -o requirements/$$set.txt requirements/$$set.in || exit 1; \
	done

asyncapi: $(VENV)/.run
	$(BIN)/python -m foliot_schemas.asyncapi > docs/asyncapi.json

clean:
	rm -rf $(VENV) run .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/bin/uv: requirements/setup.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q --disable-pip-version-check --require-hashes -r requirements/setup.txt
	@touch $@

$(VENV)/.run: requirements/run.txt $(MANIFESTS) $(VENV)/bin/uv
	$(BIN)/uv pip install -q --require-hashes -r requirements/run.txt
	$(BIN)/uv pip install -q --no-deps --no-build-isolation $(addprefix -e ./,$(MEMBERS))
	@touch $@

$(VENV)/.dev: requirements/dev.txt $(VENV)/.run
	$(BIN)/uv pip install -q --require-hashes -r requirements/dev.txt
	@touch $@
