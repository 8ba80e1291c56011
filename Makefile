# Each target does its own set-up: virtual environment, packages, livekit-server.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo demo-web test chaos matrix check bench clean

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --group dev --editable .
	touch $(READY)

demo: $(READY) ## five endings, live, in about a minute
	$(BIN)/python scripts/demo.py

demo-web: $(READY) ## a page that knows what its agent is doing, on http://127.0.0.1:8080
	npm --prefix examples/web install --no-audit --no-fund --no-package-lock
	npm --prefix examples/web run build
	$(BIN)/python -m examples.web_demo

test: $(READY) ## everything; what this machine lacks is named at the end as not run
	@# before the tests, whose time-outs leave no time to build it in
	-@$(BIN)/python scripts/livekit_server.py
	$(BIN)/python -m pytest -n 2 --dist loadfile

chaos: $(READY) ## every row of docs/matrix.md ten times; about forty minutes
	-@$(BIN)/python scripts/livekit_server.py
	$(BIN)/python -m pytest -n 2 --dist load -p tests.endings -m "ending or chaos" --times 10

matrix: $(READY) ## docs/matrix.md out of the tests' marks
	$(BIN)/python -m pytest -p tests.endings -m ending --collect-only -q --matrix docs/matrix.md

check: $(READY) ## style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pyright --pythonpath $(BIN)/python
	$(BIN)/lint-imports

bench: $(READY) ## the tables that README.md quotes; about ten minutes
	$(BIN)/python -m benchmarks.endings
	$(BIN)/python -m benchmarks.reloads
	$(BIN)/python -m benchmarks.cost

clean:
	rm -rf $(VENV) dist
