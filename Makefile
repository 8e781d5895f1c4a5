# make demo     a fabric on this machine, faults, and what Foliot does about them
# make test     all tests
# make bench    NAME=road: Foliot measured, beside its peers where there are any
# make compose-test  the fleet of compose.yaml, for real: needs Docker
# make plots    the pictures of docs/performance.md, from bench/results
# make fuzz     ARGS="messages --seconds 300": what reads bytes from outside, fuzzed; all families, 30 s each
# make train    PyTorch, for scenarios whose workload is a training job
# make lint     ruff, mypy, import rules, codespell; tsc and Biome for the page, markdownlint for the documents, buf for the gRPC interface
# make docs     the documentation as a site, in run/site
# make page     the gateway's page, if its sources have changed
# make node     probe, agent and the command foliot, installed for this host into PREFIX=/opt/foliot
# make central  the central services and the command foliot, likewise
# make wheels   native/ compiled for x86-64 and arm64, as wheels in run/release
# make proto    the gateway's gRPC interface, built from schemas/proto by buf, unless that would break what others built on
# make proto-release  of a release alone: from then on, make lint and make proto refuse what would break clients of this interface
# make clean    what the others made

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
MEMBERS := schemas sdk $(wildcard services/*) lab
ROLES := $(notdir $(wildcard services/*))
MANIFESTS := $(addsuffix /pyproject.toml,$(MEMBERS))
WEB := services/gateway/web
PAGE := services/gateway/foliot_gateway/static/index.html
NPM := $(WEB)/npm --loglevel=error --no-fund --no-audit --no-update-notifier
# Not `npm ci`: it insists on the packages of all other platforms, which not every registry has and the lock does not name.
NPM_INSTALL := $(NPM) install --no-save --ignore-scripts --fetch-retries=1 --fetch-retry-mintimeout=1000 --fetch-timeout=60000
CHECK := schemas/asyncapi
PROTO := schemas/proto
NATIVE := $(addprefix native/,install setup.py pyproject.toml) $(wildcard native/foliot_native/*.py*)
ARGS ?=
NAME ?= road
PREFIX ?= /opt/foliot
# Shows and runs what fetches, which fails as ever; uv's own advice is a flag that cannot be given through make.
fetch = @echo "$(1)"; $(1) || { status=$$?; echo "$(no_certificate)" >&2; exit $$status; }
no_certificate := If a certificate was not trusted, as behind a proxy that inspects TLS: set SSL_CERT_FILE, PIP_CERT and NODE_EXTRA_CA_CERTS, or UV_SYSTEM_CERTS=true; see Install in docs/hosts.md
# What a host gets by `make node` and `make central`: hashed requirements, and members of this repository.
node_pins := node
node_members := schemas sdk services/probe services/agent
central_pins := gateway sync detector remediator keys
central_members := schemas sdk services/gateway services/sync services/detector services/remediator

.PHONY: demo test compose-test bench train plots fuzz lint docs page node central wheels pins asyncapi proto proto-release clean

demo: $(VENV)/.run $(VENV)/.native
	@$(MAKE) -s page || echo "The page was not built: see above. The demo goes on without it."
	@$(BIN)/foliot lab demo $(ARGS)

test: $(VENV)/.dev
	@if $(MAKE) -s page $(WEB)/node_modules/.dev; then $(NPM) run -s test; \
	  else echo "The page was not built, see above: its tests are left out."; fi
	@$(MAKE) -s $(CHECK)/node_modules/.done || echo "AsyncAPI's parser could not be had, see above: its tests are left out."
	@$(MAKE) -s $(PROTO)/node_modules/.done || echo "buf could not be had, see above: its tests are left out."
	$(BIN)/pytest --numprocesses=3 --durations=20 $(ARGS)

compose-test: $(VENV)/.dev
	FOLIOT_CONTAINERS=1 $(BIN)/pytest tests/containers $(ARGS)

bench: $(VENV)/.run $(VENV)/.native
	@$(BIN)/python -m bench $(NAME) $(FILE) $(ARGS)

train: $(VENV)/.train

plots: $(VENV)/.dev
	@$(BIN)/python -m bench.plots

fuzz: $(VENV)/.dev
	@$(BIN)/python tests/fuzz/run.py $(ARGS)

lint: $(VENV)/.dev $(WEB)/node_modules/.dev $(PROTO)/node_modules/.done
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy $(wildcard schemas/foliot_* sdk/foliot native/foliot_native services/*/foliot_* lab/foliot_*) bench docs/site
	$(BIN)/lint-imports
	$(BIN)/codespell
	$(NPM) run -s lint
	$(NPM) run -s lint:documents
	$(NPM) --prefix $(abspath $(PROTO)) run -s lint

# Its pages are laid out first: the documents, and those that are made from the code. A warning of mkdocs is an error.
docs: $(VENV)/.docs $(WEB)/node_modules/.dev
	$(BIN)/python docs/site/pages.py run/docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

page: $(PAGE)

# By wheels, so that nothing of this directory is needed afterwards. Both may go into one PREFIX.
# With bytecode: services may not write there, and would compile all that they import at each start.
node central: export UV_COMPILE_BYTECODE := 1
node central: $(VENV)/.run
	@[ $@ = node ] || $(MAKE) -s page || echo "The page was not built: see above. The gateway goes without it."
	$(PYTHON) -m venv --without-pip $(PREFIX)
	$(call fetch,$(BIN)/uv pip install -q --python $(PREFIX)/bin/python --require-hashes $(addprefix -r requirements/,$(addsuffix .txt,$($@_pins))))
	rm -rf run/wheels
	$(BIN)/pip wheel -q --disable-pip-version-check --no-deps --no-build-isolation -w run/wheels $(addprefix ./,$($@_members))
	@native/install $(BIN) run/wheels || $(BIN)/uv pip uninstall -q --python $(PREFIX)/bin/python foliot-native
	$(BIN)/uv pip install -q --python $(PREFIX)/bin/python --no-deps --reinstall run/wheels/*.whl
	@echo "installed: $(PREFIX)/bin/foliot"

# For the version of Python that PYTHON is, and glibc 2.17 or newer.
wheels: $(VENV)/.dev
	@native/wheels $(BIN) run/release

# Writes the hashed requirements from the *.in files. No lock file of uv's: it records where packages were fetched from.
# A role's are what its own pyproject asks for, in the versions of run.txt: what its image installs. So are those of `foliot keys`, by the sdk's.
COMPILE := $(BIN)/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-header --no-emit-index-url
pins: $(VENV)/bin/uv
	for set in setup run dev docs web build zig node train; do \
	  $(COMPILE) -o requirements/$$set.txt requirements/$$set.in || exit 1; \
	done
	for role in $(ROLES); do \
	  $(COMPILE) -c requirements/run.txt --no-emit-package foliot --no-emit-package foliot-schemas \
	    -o requirements/$$role.txt services/$$role/pyproject.toml || exit 1; \
	done
	$(COMPILE) -c requirements/run.txt --no-emit-package foliot-schemas --extra keys -o requirements/keys.txt sdk/pyproject.toml

# What others build on: refuses to go on if the contract was broken.
asyncapi: $(VENV)/.run
	$(BIN)/python -m foliot_schemas.compatibility schemas/tests/golden/contract.json
	$(BIN)/python -m foliot_schemas.asyncapi schemas/tests/golden > docs/asyncapi.json
	$(BIN)/python -m foliot_schemas.page_types > $(WEB)/src/event_kinds.ts

# What the gateway serves by gRPC. What clients built on is that of the last release, which nothing else writes: refuses to go on if that was broken.
proto: $(PROTO)/node_modules/.done
	$(NPM) --prefix $(abspath $(PROTO)) run -s breaking
	$(NPM) --prefix $(abspath $(PROTO)) run -s build

proto-release: $(PROTO)/node_modules/.done
	$(NPM) --prefix $(abspath $(PROTO)) run -s release

clean:
	rm -rf $(VENV) run native/build native/*.egg-info native/foliot_native/*.so $(dir $(PAGE)) $(WEB)/node_modules $(CHECK)/node_modules $(PROTO)/node_modules .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/bin/uv: requirements/setup.txt
	$(PYTHON) -m venv $(VENV)
	$(call fetch,$(BIN)/pip install -q --disable-pip-version-check --require-hashes -r requirements/setup.txt)
	@touch $@

$(VENV)/.run: requirements/run.txt $(MANIFESTS) $(VENV)/bin/uv
	$(call fetch,$(BIN)/uv pip install -q --require-hashes -r requirements/run.txt)
	$(BIN)/uv pip install -q --no-deps --no-build-isolation $(addprefix -e ./,$(MEMBERS))
	@touch $@

# Where nothing can be compiled it is tried again each time, as a compiler may have come meanwhile.
$(VENV)/.native: $(NATIVE) requirements/build.txt requirements/zig.txt | $(VENV)/.run
	@! native/install $(BIN) || touch $@

$(VENV)/.dev: requirements/dev.txt $(VENV)/.run | $(VENV)/.native
	$(call fetch,$(BIN)/uv pip install -q --require-hashes -r requirements/dev.txt)
	@touch $@

$(VENV)/.docs: requirements/docs.txt $(VENV)/.run
	$(call fetch,$(BIN)/uv pip install -q --require-hashes -r requirements/docs.txt)
	@touch $@

# By pip, and without a hash: see requirements/torch.txt.
$(VENV)/.train: requirements/train.txt requirements/torch.txt $(VENV)/.run
	$(call fetch,$(BIN)/uv pip install -q --require-hashes -r requirements/train.txt)
	$(call fetch,$(BIN)/pip install -q --disable-pip-version-check -r requirements/torch.txt)
	@touch $@

$(PAGE): $(shell find $(WEB)/src -type f) $(addprefix $(WEB)/,index.html vite.config.ts package-lock.json) | $(WEB)/node_modules/.run
	$(NPM) run -s build -- --logLevel=warn
	@touch $@

# What builds the page, and that with what checks it.
$(WEB)/node_modules/.run: $(WEB)/package-lock.json $(VENV)/bin/uv
	$(NPM_INSTALL) --omit=dev
	@touch $@

$(WEB)/node_modules/.dev: $(WEB)/package-lock.json $(VENV)/bin/uv
	$(NPM_INSTALL)
	@touch $(@D)/.run $@

# AsyncAPI's own parser, for the test that reads docs/asyncapi.json with it; and buf.
$(CHECK)/node_modules/.done $(PROTO)/node_modules/.done: %/node_modules/.done: %/package-lock.json $(VENV)/bin/uv
	$(NPM_INSTALL) --prefix $(abspath $*)
	@touch $@
