# `make demo` and `make test` need only python3 (3.11 or newer) and make; everything is installed into .venv/.

PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/installed
PEERS := .venv-peers/installed
FORMATS := .venv-formats/installed
CPP := runtime/cpp/build

.PHONY: setup demo test web web-build web-test cpp cpp-test cpp-check lint format bench bench-peers formats-test clean

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

# Builds and tests the C++ runtime as well, where a compiler is there and what it needs is to be had.
test: $(STAMP)
	@if command -v cmake >/dev/null && command -v c++ >/dev/null; then runtime/cpp/get_dependencies.sh $(CPP)/dependencies \
		|| echo "the C++ runtime is not tested: what it needs is not to be had here"; fi
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2

# The translator page of a bundle, in a browser at the address that is printed. Needs Node 20 or newer.
# For example: make web WEB_BUNDLE=bundle
WEB_BUNDLE ?= demo/bundle
web: $(STAMP) web-build
	@[ "$(WEB_BUNDLE)" != demo/bundle ] || [ -d demo/bundle ] || $(MAKE) --no-print-directory demo
	@$(BIN)/tfexport serve-web $(WEB_BUNDLE)

# What the page and the command of Node are made of; `make test` tests them where this was run.
web-build:
	@npm ci --silent --no-audit --no-fund --prefix runtime/web
	@npm run --silent --prefix runtime/web build

web-test: $(STAMP) web-build
	@$(BIN)/python -m pytest tests/web

# The C++ runtime: fetches what it needs and builds. Needs cmake and a C++17 compiler; on Debian and Ubuntu:
# apt-get install cmake g++ nlohmann-json3-dev libsentencepiece-dev pkg-config
cpp:
	@runtime/cpp/get_dependencies.sh $(CPP)/dependencies
	@cmake -S runtime/cpp -B $(CPP)/main -DONNXRUNTIME_ROOT=$(CURDIR)/$(CPP)/dependencies \
		-DSENTENCEPIECE_ROOT=$(CURDIR)/$(CPP)/dependencies -DCMAKE_PREFIX_PATH=$(CURDIR)/$(CPP)/dependencies/usr
	@cmake --build $(CPP)/main --parallel $$(nproc)

cpp-test: $(STAMP) cpp
	@$(BIN)/python -m pytest tests/cpp

# Sanitizers, fuzzing, the standard library of phones, and arm64 under emulation, with a bundle of random weights, and the
# formats of PyTorch in native code; says what it leaves out.
cpp-check: $(CPP)/bundle/bundle.json
	@tests/cpp/sanitize.sh $(CPP)/bundle
	@tests/cpp/libcxx.sh
	@tests/cpp/arm64.sh $(CPP)/bundle
	@TFEXPORT_COMPILE=1 OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests/formats/test_torch_formats.py

# Made again where the exporter, or what a golden file expects, may have changed.
$(CPP)/bundle/bundle.json: $(STAMP) $(shell find tfexport train/tfexport_train runtime/python -name '*.py')
	@runtime/cpp/get_dependencies.sh $(CPP)/dependencies
	@$(BIN)/tfexport init train/configs/dates.yaml -o $(CPP)/untrained.pt
	@$(BIN)/tfexport export $(CPP)/untrained.pt -o $(CPP)/bundle --with attention --with encoder-state --force

lint: $(STAMP)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

format: $(STAMP)
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

# Against other ways to run the same weights: benchmarks/README.md. For example: make bench BENCH="--quick --threads 2"
bench: $(STAMP) $(PEERS)
	@$(BIN)/python -m benchmarks $(BENCH)

bench-peers: $(PEERS)

# slimt has no wheels for some systems; its comparison is then left out.
$(PEERS): constraints.txt
	@rm -f $@
	@.venv-peers/bin/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear .venv-peers
	@echo "Installing the peers into .venv-peers (a few minutes the first time) ..."
	@.venv-peers/bin/python -m pip install --quiet --no-compile --disable-pip-version-check -c constraints.txt -e ".[peers]"
	@.venv-peers/bin/python -m pip install --quiet --no-compile --disable-pip-version-check --only-binary :all: \
		-c constraints.txt -e ".[slimt]" || echo "slimt is not to be had here"
	@touch $@

# The formats that need more than `make test` has: ExecuTorch, OpenVINO, onnxruntime-extensions, the schema of Triton.
formats-test: $(FORMATS)
	@TFEXPORT_COMPILE=1 OMP_NUM_THREADS=1 .venv-formats/bin/python -m pytest tests/formats

# ExecuTorch has no wheels for some systems; its tests then say that it is missing. Of Triton's clients one file is read,
# so they come without what they need: an older protobuf than that of ONNX.
$(FORMATS): pyproject.toml constraints.txt
	@rm -f $@
	@.venv-formats/bin/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear .venv-formats
	@echo "Installing into .venv-formats (a few minutes the first time, 2 GB) ..."
	@.venv-formats/bin/python -m pip install --quiet --no-compile --disable-pip-version-check -c constraints.txt -e ".[dev,formats]"
	@.venv-formats/bin/python -m pip install --quiet --no-compile --disable-pip-version-check --only-binary executorch \
		-c constraints.txt -e ".[executorch]" || echo "ExecuTorch is not to be had here"
	@.venv-formats/bin/python -m pip install --quiet --no-compile --disable-pip-version-check --no-deps \
		-c constraints.txt tritonclient || echo "the schema of Triton is not to be had here"
	@touch $@

clean:
	rm -rf .venv .venv-peers .venv-formats $(CPP) build dist demo run/bench .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
