# Two commands: `make lab` opens the quickstart, `make test` runs the checks. Both make the same
# environment first, once: the stamp is older than pyproject.toml or constraints.txt only if they changed.

PYTHON ?= python3
VENV ?= .venv
NOTEBOOK ?= notebooks/01_quickstart.ipynb
# On Linux without a GPU: make lab TORCH_INDEX=https://download.pytorch.org/whl/cpu
TORCH_INDEX ?=
LAB_ARGS ?=
TEST_ARGS ?=
# Workers of pytest: one more than cores, because a worker often waits for a browser or another
# process; four at most, each with one thread.
WORKERS ?= $(shell expr $$(getconf _NPROCESSORS_ONLN) + 1)
BENCH_ARGS ?=

# Where it is set, every process would compile the package again.
export PYTHONDONTWRITEBYTECODE =

# JupyterLab asks no server for updates, and nobody whether it may fetch news.
QUIET_LAB = --LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate --LabApp.app_settings_dir="$(CURDIR)/scripts/jupyterlab"

BIN = $(VENV)/bin
PYTEST = $(BIN)/pytest -n $(WORKERS) --maxprocesses=4 --dist=worksteal
STAMP = $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help lab test release-check lint format style docs bench screenshot constraints clean

help: ## show this list
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 24

$(STAMP): pyproject.toml constraints.txt scripts/environment.sh
	@sh scripts/environment.sh "$(PYTHON)" "$(VENV)" "$(TORCH_INDEX)"
	@touch $@

lab: $(STAMP) ## open the quickstart in JupyterLab (LAB_ARGS=... are handed on)
	@PATH="$(abspath $(BIN)):$$PATH" $(BIN)/jupyter lab $(QUIET_LAB) $(LAB_ARGS) $(NOTEBOOK)

lint: style ## style, types, the order of the rooms, and how full their lines are
	$(BIN)/mypy
	@$(BIN)/python -m scripts.reading

format: $(STAMP) ## format Python, JavaScript and styles
	$(BIN)/ruff check --fix-only --quiet .
	$(BIN)/ruff format .
	@$(BIN)/python -m scripts.jsdoc
	@$(BIN)/python -m tests.front_end.tools

style: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

test: style ## style, types of JavaScript, tests, notebooks, widgets in a real browser
	$(PYTEST) $(TEST_ARGS)

release-check: style ## types, site, wheel, sdist, binder, a fresh clone, the matrices, and the other tests that are slow
	$(PYTEST) --slow --matrix -m "slow or matrix" $(TEST_ARGS)

docs: $(STAMP) ## build the site into build/docs, and as one file to send; a warning or a broken link fails
	@$(BIN)/python -m scripts.docs

bench: $(STAMP) ## measure against peers and limits (BENCH_ARGS=... are handed on)
	@$(BIN)/python -m benchmarks $(BENCH_ARGS)

screenshot: $(STAMP) ## make the README's pictures and the site's stills in a real browser
	@$(BIN)/python -m scripts.screenshot

constraints: $(STAMP) ## write what is installed to constraints.txt
	@sh scripts/freeze.sh $(BIN)/pip > $(VENV)/constraints.txt
	@mv $(VENV)/constraints.txt constraints.txt

clean: ## remove the environment, caches and screenshots
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .screenshots build dist tests/front_end/node_modules
