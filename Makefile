# Every target does its own set-up; a machine with Python 3.11, pip, make and gcc is enough.
PYTHON ?= python3.11
VENV   := .venv
BIN    := $(VENV)/bin
KERNELS := $(VENV)/.kernels
# Without bytecode, which some containers forbid, every start takes seconds more.
export PYTHONDONTWRITEBYTECODE :=
export BAYESTREAM_DATA ?= $(abspath ../shared/data)

# An environment is filled while the kernels are compiled; tests run beside the linters.
MAKEFLAGS += --jobs=2

.PHONY: demo test quick test-all test-native lint docs bench compare docs-figures clean

demo: $(VENV)/.use $(KERNELS)
	$(BIN)/bayestream demo --out out

test: lint quick

# Most of a test's time is compilation: a file's tests run in one process, files share what they
# compile, and the quick run asks XLA to hurry (its older code generator takes half the time);
# `test-all` does not.
COMPILED := JAX_COMPILATION_CACHE_DIR=$(abspath out/compiled) \
  JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS=0 JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES=-1
quick: $(VENV)/.work $(KERNELS)
	$(COMPILED) XLA_FLAGS="--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false" \
	  $(BIN)/python -m pytest -q -n 2 --dist loadfile -m "not slow"

# Everything, and the filters once more on the pure-JAX kernels.
test-all: $(VENV)/.all $(KERNELS) lint
	$(BIN)/python -m pytest -q -n 2
	BAYESTREAM_KERNELS=jax $(BIN)/python -m pytest -q -n 2 -m "not slow" \
	  tests/test_equivalences.py tests/test_contract.py tests/test_numerics.py tests/test_rows.py

# The kernels under the address and undefined-behaviour sanitizers.
SANITIZE := -g -fsanitize=address,undefined -fno-sanitize-recover=undefined
test-native: $(VENV)/.work
	BAYESTREAM_KERNELS=native BAYESTREAM_CXXFLAGS="$(SANITIZE)" $(BIN)/python setup.py --quiet \
	  build_ext --build-lib out/sanitized --build-temp out/sanitized/objects
	NATIVE_UNDER_TEST=$(abspath out/sanitized/bayestream) ASAN_OPTIONS=detect_leaks=0 \
	  LD_PRELOAD="$$(gcc -print-file-name=libasan.so) $$(gcc -print-file-name=libstdc++.so)" \
	  $(BIN)/python -m pytest -q -s -p no:xdist tests/test_kernels.py tests/test_factor_analysis.py \
	    tests/test_equivalences.py

lint: $(VENV)/.work
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/pyright
	$(SITE)

SITE := NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict --site-dir out/site
docs: $(VENV)/.work
	$(SITE)
	@echo "open file://$(abspath out/site/index.html)"

# On an otherwise idle machine, about 25 minutes.
bench: $(VENV)/.use $(KERNELS)
	$(BIN)/python benchmarks/speed.py --out out
	$(BIN)/python benchmarks/first.py

# Every estimator on UCI energy: error, calibration, speed.
compare: $(VENV)/.use $(KERNELS)
	$(BIN)/python benchmarks/compare.py --out out

# The pictures of the pages, and the output that they show, by the very code they show.
docs-figures: $(VENV)/.work $(KERNELS)
	$(BIN)/bayestream demo --out docs/figures
	ls docs/*.md docs/tutorials/*.md | xargs -t -n 1 $(BIN)/python docs/_examples.py

# What a user needs, or that and what a contributor needs; again when pyproject changes.
# Ray takes 16 s to install, and only `test-all` needs it.
USED := checkpoint,cli,data,plot,river,sklearn,tune
PIP := $(BIN)/python -m pip install -q --disable-pip-version-check --no-compile
EDITABLE := BAYESTREAM_KERNELS=jax $(PIP) --no-build-isolation -e
$(VENV)/.build: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -c "import tomllib; file = open('pyproject.toml', 'rb'); \
	  print(*tomllib.load(file)['build-system']['requires'], sep='\n')" > $(VENV)/build.txt
	$(PIP) -r $(VENV)/build.txt
	touch $@

$(VENV)/.use: $(VENV)/.build
	$(EDITABLE) '.[$(USED)]'
	touch $@

$(VENV)/.work: $(VENV)/.build
	$(EDITABLE) '.[$(USED),test]'
	touch $(VENV)/.use $@

$(VENV)/.all: $(VENV)/.work
	$(EDITABLE) '.[all,test]'
	touch $@

# The kernels, again when one changes; without a compiler it says so, and pure JAX serves.
$(KERNELS): setup.py $(wildcard native/*) $(VENV)/.build
	$(BIN)/python setup.py --quiet build_ext --inplace
	touch $@

clean:
	rm -rf $(VENV) out .pytest_cache .ruff_cache
