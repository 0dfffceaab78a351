# The two commands: `make demo` and `make test`. Each does its own set-up in .venv.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
LOCK := launch/locks/cpu.txt
# PyTorch's own index of CPU builds, added only where pip does not find the locked one.
TORCH_INDEX := https://download.pytorch.org/whl/cpu
STAMP := $(VENV)/.installed

.PHONY: help demo test test-fast test-gpu check bench lock clean

help: ## list the commands
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

demo: $(STAMP) ## a real debate on real vLLM, with its controls, on this machine
	$(BIN)/debate-local run -m experiment=demo protocol.rounds=1,2 engine.kv_cache_gib=1

test: $(STAMP) check ## the whole suite
	$(BIN)/python -m pytest -m "not gpu" --durations=15

test-fast: $(STAMP) ## everything but real engines and slow tests: under a minute
	$(BIN)/python -m pytest -m "not gpu and not vllm and not slow"

test-gpu: $(STAMP) ## the tests that need a GPU
	$(BIN)/python -m pytest -m gpu

check: $(STAMP) ## lint, format and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(STAMP) ## measure, and keep the results in tests/bench/results/
	$(BIN)/python -m tests.bench

lock: ## write the lock file anew from pyproject.toml
	$(PYTHON) launch/locks/make_lock.py

clean: ## remove the virtual environment (never runs)
	rm -rf $(VENV)

$(STAMP): $(LOCK) pyproject.toml
	@test -x $(BIN)/python || "$(PYTHON)" -m venv $(VENV)
	@torch=$$(grep '^torch==' $(LOCK)); extra=""; \
	$(BIN)/pip install -q --dry-run --no-deps "$$torch" >/dev/null 2>&1 || extra="--extra-index-url $(TORCH_INDEX)"; \
	echo "installing the locked packages into $(VENV) (a few minutes the first time) ..."; \
	$(BIN)/pip install -qq --no-deps $$extra -r $(LOCK)
	@$(BIN)/pip install -q --no-deps --no-build-isolation -e .
	@touch $@
