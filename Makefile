# Every target does its own set-up in .venv/ first; nothing has to be exported or activated.

VARIANT ?= max
PRESET ?=
ARGS ?=
JOBS ?= 2
PYTHON ?=

PY := .venv/bin/python
BOOTSTRAP = PYTHON='$(PYTHON)' scripts/bootstrap

.DEFAULT_GOAL := help
.PHONY: help setup tools verilog test lint format regression bench report docs litex lock clean distclean

help: ## Show this list
	@echo 'Targets:'
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1@\2/p' $(firstword $(MAKEFILE_LIST)) | \
	  awk -F'@' '{ printf "%-18s %s\n", $$1, $$2 }'

verilog: ## Generate Verilog (VARIANT=max|efficient|low|baseline, PRESET=, ARGS=)
	@$(BOOTSTRAP) generate
	$(PY) -m rtl_gen --variant $(VARIANT) $(if $(PRESET),--preset $(PRESET)) $(ARGS)

test: lint tools ## Run formatter check, linters and all fast tests (ARGS= for pytest, JOBS=2)
	@$(PY) -m pytest -n $(JOBS) --dist worksteal $(ARGS)

lint: setup ## Check format, style, types and who imports whom
	@$(PY) -m ruff format --check .
	@$(PY) -m ruff check .
	@$(PY) -m mypy
	@.venv/bin/lint-imports --cache-dir build/import-linter

format: setup ## Format all Python files
	@$(PY) -m ruff check --fix --exit-zero .
	@$(PY) -m ruff format .

regression: setup ## Run the long simulations (ARGS= for python -m verif)
	$(PY) -m verif run all $(ARGS)
	$(PY) -m verif prove
	$(PY) -m verif fuzz --cases 100000
	$(PY) -m verif fuzz --cases 10000 --adversarial
	$(PY) -m pytest -q --long -m long
	$(PY) -m pytest -q --long tests/test_docs.py
	$(PY) -m verif coverage

bench: setup ## Measure utilisation, area, clock frequency and simulation speed
	$(PY) -m verif bench $(ARGS)
	$(PY) -m synth column

report: setup tools ## Area, timing and power of all variants, beside the paper (ARGS= for it)
	$(PY) -m synth report $(ARGS)

docs: ## Write the documentation as a site to build/site/ (ARGS= for mkdocs build)
	@$(BOOTSTRAP) docs
	NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build $(ARGS)
	@echo 'open build/site/index.html; for its search, serve it: $(PY) -m http.server -d build/site'

tools: setup ## Fetch CACTI, a standard-cell library and Icarus Verilog into build/ (11 MB)
	@$(PY) -m synth fetch >/dev/null || echo 'tools: tests that need them are skipped' >&2
	@$(PY) -m verif.sim.icarus >/dev/null || echo 'tools: tests in Icarus Verilog are skipped' >&2

setup: ## Create or update .venv/ with everything
	@$(BOOTSTRAP) full

litex: setup ## Install LiteX, for the second way to a board (docs/boards.md)
	@$(BOOTSTRAP) litex

lock: setup ## Write constraints.txt from what is installed
	@$(BOOTSTRAP) docs
	@$(BOOTSTRAP) litex
	@mkdir -p build && scripts/lock > build/constraints.txt && mv build/constraints.txt constraints.txt

clean: ## Remove build products
	rm -rf build .pytest_cache .ruff_cache .hypothesis
	find . -path ./.venv -prune -o -name __pycache__ -type d -exec rm -rf {} +

distclean: clean ## Remove .venv/ too
	rm -rf .venv adagp.egg-info
