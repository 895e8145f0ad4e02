# make run    install and compare three methods on a data set that scikit-learn ships
# make test   install what tests need and run all of them
# make lint   ruff and pyright        make bench  step times beside GPyTorch        make docs  build the pages
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
STAMPS := $(VENV)/.installed
OUTPUT ?= candid-report
# For example: make bench BENCH="run ppgpr/table3 --budget quick"
BENCH  ?= speed --quick

.PHONY: run test lint bench docs clean
.SECONDARY:

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

# One stamp for each set of extras: an install runs again only when the requirements change.
$(STAMPS)/%: $(BIN)/python pyproject.toml constraints.txt
	$(PIP) --editable ".[$*]"
	@mkdir -p $(STAMPS) && touch $@

run: $(STAMPS)/report,data
	$(BIN)/candid compare --output $(OUTPUT)

test: $(STAMPS)/test
	$(BIN)/python -m pytest -n 2 --dist worksteal tests

lint: $(STAMPS)/test $(STAMPS)/lint
	$(BIN)/ruff check src tests examples docs
	$(BIN)/ruff format --check src tests examples docs
	$(BIN)/pyright

bench: $(STAMPS)/bench
	$(BIN)/candid bench $(BENCH)

docs: $(STAMPS)/docs
	$(BIN)/python -m sphinx -W --keep-going -b html docs docs/_build/html
	@echo "Open docs/_build/html/index.html"

clean:
	rm -rf $(VENV) $(OUTPUT) candid-bench docs/_build docs/gallery .pytest_cache .ruff_cache
