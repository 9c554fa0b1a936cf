# Two commands are enough: `make run` starts the service, `make test` proves it. Both install what they need.

UV_VERSION := 0.13.8
UV := $(or $(shell command -v uv 2>/dev/null),.uv/bin/uv)
PYTHON := .venv/bin/python
EARSHOT := .venv/bin/earshot

.PHONY: run test unit check format bench kafka clean

run: .venv/.installed ## Start the service: embedded log, bundled model, data under ./data
	@$(EARSHOT) serve

test: check ## Everything that this machine can run: unit, contract, recovery, interop; real Kafka when Java is there
	@$(PYTHON) -m pytest tests/unit -q -n auto
	@$(PYTHON) -m pytest tests -q --ignore=tests/unit

unit: .venv/.installed ## The unit tier alone, under a minute
	@$(PYTHON) -m pytest tests/unit -q -n auto

check: .venv/.installed ## Lint, types, import rules
	@.venv/bin/ruff check .
	@.venv/bin/ruff format --check .
	@.venv/bin/mypy
	@.venv/bin/lint-imports --no-logo

format: .venv/.installed ## Format the code
	@.venv/bin/ruff check --fix .
	@.venv/bin/ruff format .

bench: .venv/.installed ## The table of ratios; see benchmarks/README.md
	@$(PYTHON) -m benchmarks

kafka: .venv/.installed ## A real Kafka in the foreground without Docker: make kafka [NODES=3]
	@$(EARSHOT) kafka --nodes $(or $(NODES),1)

clean: ## Remove what was installed and built, not ./data
	@rm -rf .venv .uv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

# uv makes the environment from the lock file; where it is missing it comes from the package index into .uv.
.uv/bin/uv:
	@python3 -m venv .uv
	@.uv/bin/pip install -q uv==$(UV_VERSION)

.venv/.installed: pyproject.toml uv.lock $(filter .uv/bin/uv,$(UV))
	@$(UV) sync -q --locked
	@$(PYTHON) -m infra.compile
	@touch $@
