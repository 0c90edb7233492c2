# The one door: what a newcomer, a developer and CI type. Logic lives in what these targets call.
# SPDX-License-Identifier: Apache-2.0

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.complete
TESTS := $(VENV)/.complete-tests
PREFIX ?= /opt/hotstage
DESTDIR ?=
PYTEST := $(BIN)/python -m pytest
SELECTED := not image and not clean_debian and not long and not other_kernels and not torch
HOST := $(addprefix tests/,benchmark bpf browser integration simhost unit/marks)
TORCH := torch==2.14.1

.PHONY: help run test check lint bench setup setup-tests bpf clean fmt generate unit kernel integration browser host beside pages long test-torch bench-eager packages wheel deb image install uninstall

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 14

run: setup ## the demo: a simulated GPU host, a fault within the first minute, the explorer on a printed address
	@$(BIN)/hotstage demo --fault encoder-stall@20-40

# What needs the host for itself (probes see every process) runs beside what does not; the latter reports last, and is
# nice: a demo that is starved of CPU rightly finds its stages slow. Pages mostly wait for their next update, so that
# they and the rest go side by side, too.
test: setup-tests ## lint, types, unit, BPF, integration and browser tests
	@echo "what does not need the host for itself runs beside the others and reports after them"
	@nice -n 19 $(MAKE) --no-print-directory beside >$(VENV)/beside.log 2>&1 & beside=$$!; \
	nice -n 19 $(MAKE) --no-print-directory pages >$(VENV)/pages.log 2>&1 & pages=$$!; \
	$(MAKE) --no-print-directory host; host=$$?; \
	wait $$beside; beside=$$?; cat $(VENV)/beside.log; \
	wait $$pages; pages=$$?; cat $(VENV)/pages.log; exit $$((host || beside || pages))

host: setup-tests ## what loads real BPF, starts demos and drives a browser, one after the other
	$(PYTEST) --durations=20 -m '$(SELECTED) and host' $(HOST)

beside: lint
	$(PYTEST) -q --durations=10 -m '$(SELECTED) and not host and not browser' tests

pages: setup-tests
	$(PYTEST) -q --durations=10 -m '$(SELECTED) and not host and browser' tests/browser

check: lint ## what needs no root: lint, types, unit tests
	$(PYTEST) tests/unit tests/contracts -q

lint: setup-tests ## format, lint, types, import contracts, generated files
	$(BIN)/ruff format --check setup.py agent dashboards grafana tests deploy
	$(BIN)/ruff check setup.py agent dashboards grafana tests deploy
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m hotstage.probes.catalogue.generate --check
	PYTHONPATH=grafana $(BIN)/python -m generate --check

long: setup-tests ## what would take `make test` beyond a quarter of an hour
	$(PYTEST) -m long tests

# TORCH_PYTHON=/path/to/python takes a PyTorch that is installed already
test-torch: setup-tests $(if $(TORCH_PYTHON),,.venv-torch/.complete) ## real PyTorch under the probes, without a GPU: 5.5 GB of wheels, not part of test
	HOTSTAGE_TORCH_PYTHON=$(or $(TORCH_PYTHON),.venv-torch/bin/python) $(PYTEST) -s -m torch tests/pytorch

# SEEDS="11 12", PROGRAMS='"engine, one sequence"', TORCH_PYTHON as above
bench-eager: setup-tests $(if $(TORCH_PYTHON),,.venv-torch/.complete) ## how well prefill and decode of eager PyTorch are told: a table in Markdown
	HOTSTAGE_TORCH_PYTHON=$(or $(TORCH_PYTHON),.venv-torch/bin/python) $(BIN)/python -m tests.pytorch.eager \
		$(if $(SEEDS),--seeds $(SEEDS)) $(if $(PROGRAMS),--programs $(PROGRAMS))

.venv-torch/.complete:
	@echo "installing $(TORCH) and what it needs into .venv-torch: 5.5 GB, some minutes"
	@$(PYTHON) -m venv .venv-torch
	@.venv-torch/bin/python -m pip install -qq --disable-pip-version-check $(TORCH) numpy
	@touch $@

test-kernels: setup-tests ## before a release: the kernels of Debian 12 and 13 under qemu, minutes
	@$(PYTHON) deploy/system_packages.py --only qemu
	$(PYTEST) -m other_kernels tests/kernels

unit integration: setup-tests ## one layer of the tests
	$(PYTEST) tests/$@

kernel browser: setup-tests ## one kind of test: real BPF, real browser
	$(PYTEST) -m '$@ and $(SELECTED)' tests

bench: setup-tests ## the published numbers: overhead, counting, marks, stages
	@$(PYTHON) deploy/system_packages.py --only peers
	$(BIN)/hotstage bench overhead
	$(BIN)/hotstage bench counting
	$(BIN)/hotstage bench marks
	$(BIN)/hotstage bench stages

setup: $(STAMP) bpf ## system packages, virtual environment, BPF objects, marks library; says what it installs
	@$(if $(filter setup,$(MAKECMDGOALS)),echo "ready: $(BIN)/hotstage",:)

$(STAMP): pyproject.toml agent/pyproject.toml deploy/constraints.txt deploy/system_packages.py agent/setup.py $(wildcard $(addprefix agent/hotstage_marks/,native/*.[ch] native/*/*.[ch] include/*))
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "hotstage needs Python >= 3.11: make PYTHON=/path/to/python3.11" >&2; exit 4; }
	@$(PYTHON) deploy/system_packages.py
	@test -x $(BIN)/python || { echo "creating the virtual environment $(VENV)"; $(PYTHON) -m venv $(VENV); }
	@echo "installing the Python packages of pyproject.toml into $(VENV): a minute or two"
	@$(BIN)/python -m pip install -qq --disable-pip-version-check -c deploy/constraints.txt -e . -e agent
	@touch $@

setup-tests: setup $(TESTS) ## besides, what tests need: a browser, Prometheus, linters

$(TESTS): $(STAMP)
	@$(PYTHON) deploy/system_packages.py --tests
	@echo "installing the tools of the tests into $(VENV): a minute or two"
	@$(BIN)/python -m pip install -qq --disable-pip-version-check -c deploy/constraints.txt -e '.[dev]'
	@touch $@

bpf: $(STAMP) ## compile the BPF programs
	@$(MAKE) -s --no-print-directory -C bpf

wheel: setup-tests ## both Python packages, source and wheels, into dist/; the marks for x86-64 and arm64
	@$(BIN)/python deploy/wheels.py

deb: setup-tests ## a Debian package into dist/, with its virtual environment inside
	@$(BIN)/python deploy/deb.py

install: ## the service: /opt/hotstage, units, account, example setting (PREFIX, DESTDIR, PYTHON)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "hotstage needs Python >= 3.11: make install PYTHON=/path/to/python3.11" >&2; exit 4; }
	@$(PYTHON) deploy/system_packages.py --only bcc --only libbpf --only clang --only compiler --only python
	@$(PYTHON) deploy/install.py install --prefix $(PREFIX) --destdir '$(DESTDIR)'

uninstall: ## take the service away; PURGE=1 takes settings, state and the account along
	@$(PYTHON) deploy/install.py uninstall --prefix $(PREFIX) --destdir '$(DESTDIR)' $(if $(PURGE),--purge)

image: setup-tests ## build the container image and try it: two minutes, not part of test
	@$(PYTHON) deploy/system_packages.py --only buildah
	$(PYTEST) -m image tests/packaging

packages: setup-tests ## install the .deb and the wheels into a clean Debian, run the demo there: three minutes, not part of test
	$(PYTEST) -m clean_debian tests/packaging

fmt: setup-tests ## format and apply safe fixes
	$(BIN)/ruff format setup.py agent dashboards grafana tests deploy
	$(BIN)/ruff check --fix setup.py agent dashboards grafana tests deploy

generate: setup-tests ## write the generated files anew: example configuration, BPF ids, manifests, dashboards, rules
	$(BIN)/python -m hotstage.config.render > deploy/hotstage.example.toml
	$(BIN)/python -m hotstage.probes.catalogue.generate
	$(BIN)/python deploy/kubernetes/generate.py
	PYTHONPATH=grafana $(BIN)/python -m generate

clean: ## remove what the build made
	$(MAKE) -C bpf clean
	rm -rf $(VENV) .venv-torch build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	find agent dashboards -name '*.egg-info' -prune -exec rm -rf {} + -o -name '*.so' -delete
