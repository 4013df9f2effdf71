# `make demo` and `make test` need only python3 (3.11 or newer) and make; everything is installed into .venv/.

PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/installed

.PHONY: setup demo test web web-test cpp cpp-test lint format bench clean

setup: $(STAMP)

# A failed install leaves no stamp, so the next call tries again.
$(STAMP): pyproject.toml constraints.txt
	@rm -f $@
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=/path/to/python3.11")'
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear .venv \
		|| { echo "cannot create .venv; on Debian and Ubuntu: apt-get install python3-venv" >&2; exit 1; }
	@echo "Installing into .venv (a few minutes the first time) ..."
	@$(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check -c constraints.txt -e ".[dev]"
	@touch $@

demo: $(STAMP)
	@$(BIN)/tfexport demo --output demo

test: $(STAMP)
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2

# The web runtime: packages, compiler, and the page in a real browser where Chromium is installed.
web:
	@npm ci --silent --no-audit --no-fund --prefix runtime/web
	@npm run --silent --prefix runtime/web build

web-test: $(STAMP) web
	@TFEXPORT_BROWSER_TESTS=1 $(BIN)/python -m pytest tests/web

# The C++ runtime. On Debian and Ubuntu: apt-get install cmake g++ nlohmann-json3-dev libsentencepiece-dev
cpp:
	@runtime/cpp/get_dependencies.sh runtime/cpp/build/dependencies
	@cmake -S runtime/cpp -B runtime/cpp/build/main -DONNXRUNTIME_ROOT=$(CURDIR)/runtime/cpp/build/dependencies
	@cmake --build runtime/cpp/build/main

cpp-test: $(STAMP) cpp
	@$(BIN)/python -m pytest tests/cpp

lint: $(STAMP)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

format: $(STAMP)
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

# The speed of an untrained Transformer-base; BENCH_CONFIG chooses another shape.
BENCH_CONFIG ?= train/configs/base.yaml
bench: $(STAMP)
	@$(BIN)/tfexport init $(BENCH_CONFIG) -o run/bench/ckpt.pt
	@$(BIN)/tfexport export run/bench/ckpt.pt -o run/bench/bundle --force
	@$(BIN)/tfexport bench run/bench/bundle --checkpoint run/bench/ckpt.pt

clean:
	rm -rf .venv build dist demo run/bench .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
