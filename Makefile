# Everything starts here: `make` alone prints what there is.
# Needs make and Python 3.11 or newer. pip uses your own configuration (index, proxy, certificates).

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

# The requirements of a dependency group, for any version of pip.
GROUP = $(BIN)/python -c 'import sys, tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["dependency-groups"][sys.argv[1]])'

# Hashes are those of one platform; elsewhere versions are pinned without them. `make LOCK= test` does without, too.
ifeq ($(origin LOCK), undefined)
HERE := $(shell $(PYTHON) -c 'import platform as p, sys; print(*sys.version_info[:2], p.python_implementation(), p.system(), p.machine(), sep="-")' 2>/dev/null)
LOCK := $(if $(filter 3-11-CPython-Linux-x86_64,$(HERE)),$(wildcard .ci/locked.txt))
endif

# An empty file that remembers an installation; it is made again when what it depends on has changed.
CORE := $(VENV)/.installed-core
DEV := $(VENV)/.installed-dev
DOCS := $(VENV)/.installed-docs

.PHONY: help demo live test data check format docs package fuzz bench clean
.DEFAULT_GOAL := help

help:  ## print this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-7s %s\n", $$1, $$2 }' Makefile
	@echo "  (demo, live, test, data, check, format, docs, package, fuzz and bench first make $(VENV) and install into it, once;"
	@echo "   another Python: make PYTHON=python3.12 test)"

demo: $(CORE)  ## see what sharing gains and costs: a small fleet on real images, in one to three minutes
	$(BIN)/shoal demo

live: $(DEV)  ## see six agents live on this host: one is killed, one link is cut, a stranger knocks; three minutes
	$(BIN)/shoal live demo

test: $(DEV)  ## run the tests (those on real datasets skip, with a reason, where the data is not)
	$(BIN)/python -m pytest -n auto --dist loadgroup

data: $(DEV)  ## run the tests on real datasets and the slow ones
	$(BIN)/python -m pytest -m "data or slow"

check: $(DEV)  ## check format, lint, floors and types
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/lint-imports
	$(BIN)/mypy

format: $(DEV)  ## format the code and repair what the linter can repair
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

docs: $(DOCS)  ## build the site into docs/_build/html; any warning, such as a broken link, fails it
	$(BIN)/python -m sphinx -W --keep-going -q -b html docs docs/_build/html
	@echo "docs/_build/html/index.html"

package: $(DEV)  ## build wheel and sdist into dist, look into both, install the wheel alone and try every command
	$(BIN)/python .ci/package.py

fuzz: $(DEV)  ## ten minutes of what a stranger could send, made at random: every answer must be a sentence
	$(BIN)/python -m bench.fuzz

bench: $(DEV)  ## measure the speed against a tight loop, stacked PyTorch by hand, JAX, a slow twin and bare products
	$(BIN)/python -m bench

clean:  ## remove the virtual environment, caches and builds; runs and downloaded data stay
	rm -rf .venv build dist docs/_build docs/reference .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Making a virtual environment that is already there does no harm, so a broken first try needs no cleaning up.
define environment
	@command -v $(PYTHON) >/dev/null || { \
		echo "shoal needs Python 3.11 or newer, and there is no '$(PYTHON)'; install it, or name yours: make PYTHON=/path/to/python" >&2; \
		exit 2; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "shoal needs Python 3.11 or newer, '$(PYTHON)' is $$($(PYTHON) --version); name a newer one: make PYTHON=python3.12" >&2; \
		exit 2; }
	$(PYTHON) -m venv $(VENV)
endef

$(CORE): pyproject.toml paper/pyproject.toml constraints.txt
	$(environment)
	$(BIN)/python -m pip install -c constraints.txt -e '.[report]' -e paper
	@touch $@

# With LOCK, a file of versions and hashes, what it names is installed first, and nothing that has another hash; nothing
# is downloaded to build shoal itself.
$(DEV): pyproject.toml paper/pyproject.toml constraints.txt $(LOCK)
	$(environment)
	$(if $(LOCK),$(BIN)/python -m pip install --no-deps --require-hashes -r $(LOCK))
	$(BIN)/python -m pip install -c constraints.txt $(if $(LOCK),--no-build-isolation) -e . -e paper $$($(GROUP) dev)
	@touch $(CORE) $@

$(DOCS): $(DEV)
	$(BIN)/python -m pip install -c constraints.txt $$($(GROUP) docs)
	@touch $@
