# make book · make test (FAST=1) · make lab · make notebooks · make slides · make plain ·
# make download · make bench-gpu · make experiments-gpu · make sanitize · make clean
# README.md shows the plain commands behind each. Another Python: make book PYTHON=python3.12

PYTHON ?= python3
CONSTRAINTS ?= -c constraints.txt
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
PAGE := _build/html/index.html
HTML := $(BIN)/jupyter-book build -q . --toc book/_toc.yml -W -n --keep-going
DOWNLOAD := _build/epub/layer-normalization
NBVAL := env PYTHONWARNINGS="ignore:layernorm's recurrent layers" $(BIN)/python -m pytest -q --nbval --nbval-current-env --nbval-cell-timeout=900
UNITS := $(BIN)/python -m pytest -q -rs -n 2 --dist loadfile
ALONE = $(patsubst %.md,%.ipynb,$(shell grep -l '^run_alone: true' notebooks/*.md))

.PHONY: book test lab notebooks slides plain download bench-gpu experiments-gpu sanitize clean

# Executes what is not current (all with FORCE=1) and builds the pages.
book: $(INSTALLED)
	$(BIN)/python tools/execute.py $(if $(FORCE),--force)
	$(html)
	@echo "The book: $(CURDIR)/$(PAGE)"
	@if [ -t 1 ] && [ -z "$$CI" ] && [ -n "$$DISPLAY$$WAYLAND_DISPLAY" -o "$$(uname)" = Darwin ]; \
	then $(BIN)/python -m webbrowser "file://$(CURDIR)/$(PAGE)" > /dev/null; fi

# From cheap to expensive; last the notebooks, two at a time, those that time code by themselves.
# One thread each, but for those, if the caller does not say how many: on small tensors a second one
# only waits. FAST=1: the first three minutes of it, without the files that tests/conftest.py calls
# slow.
THREADS := $(OMP_NUM_THREADS)
test: export OMP_NUM_THREADS := $(or $(OMP_NUM_THREADS),1)
test: export LAYERNORM_RUNS := $(CURDIR)/_build/no-runs
test: $(INSTALLED)
	$(BIN)/python -m ruff check .
	$(BIN)/python -m ruff format --check .
	$(UNITS) -m "not browser and not slow"
ifdef FAST
	@echo "Passed: style, the quick unit tests, doctests, pairs. Left out:" \
	"the unit tests of $$($(BIN)/python tests/conftest.py), pages, links, browser, notebooks."
else
	$(UNITS) $$($(BIN)/python tests/conftest.py)
	rm -rf _build/html _build/.doctrees
	$(html)
	$(BIN)/python tools/links.py _build/html
	$(UNITS) -m browser tests/browser
	$(NBVAL) -n 2 --dist loadscope notebooks $(ALONE:%=--ignore=%)
	@alone="$(ALONE)"; \
	leave_out() { echo "Chapter $$1 is left out: $$2."; alone=$$(printf '%s\n' $$alone | grep -v "/$$1-"); }; \
	$(BIN)/python -m layernorm.recurrent.cpu.build > /dev/null 2>&1 || \
	leave_out 11 "it measures what a compiler makes"; \
	$(BIN)/python -c 'import triton' 2> /dev/null || leave_out 13 "it runs Triton's kernels"; \
	set -x; $(if $(THREADS),,env -u OMP_NUM_THREADS) $(NBVAL) $$alone
	@echo "All passed: style, unit tests, doctests, pairs, pages, links, browser, notebooks."
endif

lab: $(INSTALLED)
	$(BIN)/jupyter lab --LabApp.default_url=/lab/tree/notebooks

# Executes all chapters, current or not, or those that NAMES begins: make notebooks NAMES=03
notebooks: $(INSTALLED)
	$(BIN)/python tools/execute.py --force $(NAMES)

# A deck of each part, or one of the chapters that NAMES begins, with reveal.js from a package.
slides: $(INSTALLED)
	$(BIN)/python -m pip install -q --disable-pip-version-check $(CONSTRAINTS) sphinx-revealjs
	$(BIN)/python tools/slides.py $(NAMES)

# The same pages without Jupyter Book: by Sphinx, from the configuration that Jupyter Book exports.
plain: $(INSTALLED)
	$(call sphinx,html,_build/plain/html)
	$(BIN)/python tools/same_pages.py _build/html _build/plain/html

# The book as PDF and EPUB; needs the extra `download` and a Chromium.
download: $(INSTALLED)
	$(BIN)/python -m pip install -q --disable-pip-version-check $(CONSTRAINTS) -e '.[download]'
	rm -rf _build/epub
	$(call sphinx,epub,_build/epub)
	$(BIN)/python tools/check_epub.py $(DOWNLOAD).epub
	$(BIN)/python tools/print_book.py _build/html $(DOWNLOAD).pdf
	$(BIN)/python tools/check_pdf.py $(DOWNLOAD).pdf _build/html

# On a machine with a GPU, had for minutes or for good, whose PYTHON has torch, triton, numpy and
# jaxtyping: MINUTES (9) of what is still to be measured, what was aimed for first. OUT: the folder
# for one archive of all results, FROM: an archive to go on from, STEPS: those alone, DRY=1: a dry run
# without a GPU. `python -m layernorm.lab.gpu --help` says what to run in which call.
bench-gpu:
	$(call on_gpu,bench)

# The same for the experiments' profiles standard and paper, which need the extra `experiments`.
experiments-gpu:
	$(call on_gpu,train)

on_gpu = $(PYTHON) -m layernorm.lab.gpu $(1) $(if $(OUT),--out $(OUT)) \
	$(if $(MINUTES),--minutes $(MINUTES)) $(if $(FROM),--from $(FROM)) \
	$(if $(STEPS),--steps $(STEPS)) $(if $(DRY),--pretend)

# The C++ of the recurrent layers under the address, undefined-behavior and thread sanitizers: a
# minute or two; needs g++.
sanitize:
	mkdir -p _build
	$(SANITIZED) -O0 -fopenmp -fsanitize=address,undefined && _build/sanitized
	$(SANITIZED) -O1 -fsanitize=thread && _build/sanitized

SANITIZED = g++ -std=c++17 -g -march=native -pthread -fopenmp-simd -fno-sanitize-recover=all \
	tests/recurrent/cpu/sanitized.cpp -o _build/sanitized

clean:
	rm -rf _build build dist *.egg-info .pytest_cache .ruff_cache .hypothesis
	find layernorm tests tools -name __pycache__ -prune -exec rm -rf {} +

sphinx = $(BIN)/python tools/export_config.py && \
	$(BIN)/sphinx-build -q -E -W -n --keep-going -c _build/plain -d _build/plain/$(1)-read -b $(1) . $(2)

# What gave a warning once must give it again: a failed build leaves nothing to be reused.
html = $(HTML) || { rm -rf _build/.doctrees; exit 1; }

# The stamp holds what is installed and is written last: without it, what an interrupted set-up
# left behind is thrown away; with it, a file that merely looks newer installs nothing.
$(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	echo "This project needs Python 3.11 or newer, which $(PYTHON) is not." \
	"Name one that is: make $(MAKECMDGOALS) PYTHON=python3.12"; exit 1; }
	@set -e; \
	if cat $^ | cmp -s - $@; then touch $@; exit; fi; \
	test -e $@ || $(PYTHON) -m venv --clear $(VENV); \
	rm -f $@; \
	echo "Installing into $(VENV): the first time takes some minutes"; \
	$(BIN)/python -m pip install --disable-pip-version-check $(CONSTRAINTS) -e '.[book,test]'; \
	cat $^ > $@
