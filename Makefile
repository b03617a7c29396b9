# Two commands are enough: `make demo` and `make test`. Both set up .venv first, once.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DEMO ?= runs/demo
DEMO_OPTIONS ?=
# Threads that wait do not spin, and each of two workers of pytest has a core of its own.
export OMP_WAIT_POLICY ?= PASSIVE
test test-all: export OMP_NUM_THREADS ?= 1

.PHONY: demo test test-all faults fuzz mutate test-gpu lint wheel docs readme evidence clean

demo: $(STAMP)
	$(BIN)/python -m confide demo --out $(DEMO) $(DEMO_OPTIONS)

test: $(STAMP) lint
	$(BIN)/python -m pytest -n 2

test-all: $(STAMP) lint
	$(BIN)/python -m pytest -n 2 -m "not gpu"

# Every single write of every verb that writes fails in every way, and the verb goes on to the same numbers.
faults: $(STAMP)
	FAULTS=all $(BIN)/python -m pytest -n 2 tests/faults

test-gpu:
	$(PYTHON) -m pytest -m gpu -W ignore::pytest.PytestConfigWarning tests

# Many more arguments and requests than in `make test`, then new damage to files for so many minutes.
MINUTES ?= 30
fuzz: $(STAMP)
	FUZZ_EXAMPLES=2000 $(BIN)/python -m pytest -n 2 -o timeout=3600 tests/fuzz tests/hostile
	$(BIN)/python -m tests.fuzz --minutes $(MINUTES)

# Random small changes to the package: which do its tests not notice?
mutate: $(STAMP)
	$(BIN)/python tools/mutate.py --minutes $(MINUTES)

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

wheel: $(STAMP)
	$(BIN)/python -m build --wheel --outdir dist .

$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[dev]'
	touch $(STAMP)

clean:
	rm -rf runs dist build

# Tables, verdicts, findings and the README's numbers from the cells of benchmarks/results/lite: under two minutes.
evidence: $(STAMP)
	$(BIN)/python -m benchmarks.evidence $(ARCHIVES)

readme: $(STAMP)
	$(BIN)/python tools/write_method_table.py docs/methods.md docs/metrics.md
	$(BIN)/python -m benchmarks.headline

# The site in build/site: static, searchable, nothing fetched from elsewhere; a link that leads nowhere stops it.
docs: $(STAMP)
	$(BIN)/python -c "import material" 2>/dev/null || $(BIN)/python -m pip install --quiet -c constraints.txt -e '.[docs]'
	$(BIN)/python tools/site.py build/site
