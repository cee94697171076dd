# Two commands for a machine with Python, pip and make: `make book` and `make test`.
# Both set up .venv first and do no more than what the recipes below say.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PIP := $(BIN)/python -m pip --disable-pip-version-check

# A second thread makes small models slower on a busy machine and changes last bits.
export OMP_NUM_THREADS ?= 1
export PYDEVD_DISABLE_FILE_VALIDATION ?= 1

.DEFAULT_GOAL := help
.PHONY: help setup book quick test lint types suite notebooks noise machines browser pages matrix gpu zoo pdf slides lab execute dist clean

# One process a core; a notebook stays in one process.
JOBS ?= 2

help:  ## list the commands
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP)  ## 2 minutes: set up .venv; the other commands do so themselves

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "Python 3.11 or newer is needed; $(PYTHON) is $$($(PYTHON) --version 2>&1)." >&2; \
	  echo "Name another one: make $(MAKECMDGOALS) PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	  echo "$(PYTHON) cannot make environments: its modules venv and ensurepip are missing." >&2; \
	  echo "On Debian and Ubuntu: sudo apt install python3-venv" >&2; exit 1; }
	@echo "Setting up $(VENV); the first time this takes some minutes."
	$(PYTHON) -m venv $(VENV)
	$(PIP) install --quiet --no-compile -e '.[dev]' -c constraints.txt
	@# Side by side, without the parts that nothing here imports. A file of torch needs a newer Python.
	@$(BIN)/python -m compileall -qq -j $(JOBS) -x '/tests/|/transformers/models/' $(VENV)/lib || true
	@touch $@

book: $(STAMP)  ## a minute: build the book and print the path to open
	$(BIN)/jupyter-book build . -W -n --keep-going
	@echo "Open $(CURDIR)/_build/html/index.html"

PYTEST := $(BIN)/python -m pytest --numprocesses $(JOBS)
# Where make can, what runs side by side is printed one after the other.
SYNC := $(if $(filter output-sync,$(.FEATURES)),--output-sync=target)

quick: $(STAMP)  ## less than a minute: linters, types, and the tests of layers, reference and norms
	@$(MAKE) --no-print-directory -j $(JOBS) $(SYNC) types lint
	$(PYTEST) --quiet tests/layers tests/reference tests/test_norms.py tests/test_plain.py

test: $(STAMP)  ## 15 minutes: run linters, types, tests, and every notebook against its stored outputs
	@$(MAKE) --no-print-directory -j $(JOBS) $(SYNC) types lint book
	@$(MAKE) --no-print-directory suite
	@$(MAKE) --no-print-directory notebooks
	@$(MAKE) --no-print-directory pages

lint: $(STAMP)  ## 10 seconds: ruff, the arrows between rooms, and the workflows of continuous integration
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-cache --no-logo
	$(BIN)/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml
	@$(BIN)/check-jsonschema --builtin-schema vendor.github-issue-forms .github/ISSUE_TEMPLATE/wrong_*.yml
	$(BIN)/zizmor --quiet --offline .github/workflows

types: $(STAMP)  ## 10 seconds, the first time 40: mypy
	$(BIN)/mypy

suite: $(STAMP)  ## 5 minutes: run the tests of the package and of the book's sources
	$(PYTEST) --dist worksteal --ignore tests/browser --ignore tests/zoo

notebooks: $(STAMP)  ## 5 minutes: run every notebook against its stored outputs
	$(PYTEST) --nbval --nbval-current-env --nbval-cell-timeout 300 --dist loadfile book

noise: $(STAMP)  ## 5 minutes: the notebooks as on another processor, by noise in every product; NORMLAB_NOISE=2 is another seed
	NORMLAB_NOISE=$${NORMLAB_NOISE:-1} $(MAKE) --no-print-directory notebooks

# Code paths that torch and MKL take on other processors, and two threads.
MACHINES := ATEN_CPU_CAPABILITY=default ATEN_CPU_CAPABILITY=avx2 MKL_CBWR=COMPATIBLE NORMLAB_THREADS=2

machines: $(STAMP)  ## 25 minutes: the notebooks on the code paths of other processors, and with two threads
	for machine in $(MACHINES); do \
	  echo "$$machine"; env "$$machine" $(MAKE) --no-print-directory notebooks || exit 1; \
	done

browser: book  ## 4 minutes: open every built page in Chromium; skipped where there is none
	@$(MAKE) --no-print-directory pages

pages:  ## 3 minutes: open every page of the built book in Chromium
	$(PYTEST) -rs tests/browser

# Every torch that pyproject.toml admits and we vouch for, and the newest that installs. Each
# environment takes 3 to 6 GB; the ordinary builds for GPUs run on a processor too.
TORCHES ?= 2.11.0 2.12.1 2.13.0 2.14.1 newest

matrix:  ## 6 minutes for each, and its installation: run the suite on every torch that we claim: `make matrix TORCHES=2.14.1` on one
	@$(MAKE) --no-print-directory --keep-going $(TORCHES:%=matrix-%)

matrix-%: .matrix/%/.installed
	@$(<D)/bin/python -c 'import torch; print("torch", torch.__version__)'
	$(<D)/bin/python -m pytest --numprocesses $(JOBS) --dist worksteal \
	  --ignore tests/browser --ignore tests/zoo

.PRECIOUS: .matrix/%/.installed
.matrix/%/.installed: pyproject.toml
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip --disable-pip-version-check install --quiet --upgrade \
	  -e '.[test]' torch$(patsubst ==newest,,==$*)
	@touch $@

gpu:  ## some minutes, on a GPU: run the tests that need CUDA, with the Python that runs there: `make gpu PYTHON=...`
	$(PYTHON) -m pytest -p no:cacheprovider tests/kernels/on_a_gpu.py

# The table belongs to these versions; `make zoo VERSIONS=` takes the newest, where a difference
# shows what has changed.
VERSIONS ?= -c constraints.txt

zoo: .zoo/.installed  ## 5 minutes, and an installation: examine public models of eleven libraries, in an environment of their own
	.zoo/bin/python -m pytest -p no:cacheprovider tests/zoo

.zoo/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip --disable-pip-version-check install --quiet --upgrade \
	  -e '.[zoo]' $(VERSIONS)
	@touch $@

pdf: book  ## 5 minutes: print the whole book into _build/normlab.pdf; needs Chromium
	$(BIN)/python book/_tools/pdf.py

# Their links lead into the book, which is built beside them.
slides: book  ## a minute and a half: build the slides of the lecture into _build/slides
	$(BIN)/sphinx-build -q -W -n --keep-going -b revealjs -d _build/.slides book/_slides _build/slides
	@echo "Open $(CURDIR)/_build/slides/lecture.html"

lab: $(STAMP)  ## seconds, the first time an installation: open the notebooks in JupyterLab
	@$(BIN)/python -c 'import jupyterlab' 2>/dev/null \
	  || $(PIP) install --quiet -e '.[dev,lab]' -c constraints.txt
	$(BIN)/jupyter lab --notebook-dir book

execute: $(STAMP)  ## 10 minutes: run all notebooks in place and normalize what is stored
	$(BIN)/python book/_tools/execute.py
	$(BIN)/ruff format --quiet book

# Both come into an environment of their own; a release names its tag, which has to be the version.
dist:  ## a minute: build the package into dist and check what an index would show of it
	$(PYTHON) -m venv .dist
	.dist/bin/python -m pip --disable-pip-version-check install --quiet build twine
	rm -rf dist
	.dist/bin/python -m build --outdir dist .
	.dist/bin/twine check --strict dist/*
	@test -z "$(TAG)" || test -f "dist/normlab-$(TAG:v%=%)-py3-none-any.whl" || { \
	  echo "The tag $(TAG) is not the version of $$(ls dist/*.whl)." >&2; exit 1; }

clean:  ## a second: remove the built book and all caches, and keep .venv
	rm -rf _build build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis *.egg-info
