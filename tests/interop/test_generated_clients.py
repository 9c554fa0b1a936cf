"""Clients of other languages, generated from a running service's document, stream a file; linters check the document.

The tools come from npm and Go. They are installed once; tests are skipped with a reason if they are unavailable.
"""

import shutil
from pathlib import Path
from typing import Final

import pytest

from infra.examples import RECORDING
from tests.contract.api import Service
from tests.interop.environments import kept, program, run
from tests.process import ask

#: Building Go's generator takes a minute of processor time, once.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

HERE: Final = Path(__file__).parent / "generated"
OAPI_CODEGEN: Final = "github.com/oapi-codegen/oapi-codegen/v2/cmd/oapi-codegen@v2.8.2"
#: Linter findings, and why they stay.
ACCEPTED: Final = {
    "no-path-trailing-slash": "the contract's path for the creation of sessions ends with a slash",
    "operation-2xx-response": "custom sounds are answered 501 and /dashboard 308, whatever is sent",
    "operation-4xx-response": "operations without parameters, key and body know no error of the client",
    "no-unused-components": "types of server-sent events are referred to by `x-events`, for which 3.1 has no words",
    "asyncapi-latest-version": "3.0 is what generators read today",
}


@pytest.fixture(scope="module")
def documents(service: Service, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("documents")
    for name, path in {
        "openapi": "/openapi.json",
        "sessions": "/audio_sessions/openapi.json",
        "asyncapi": "/asyncapi.json",
    }.items():
        (folder / f"{name}.json").write_bytes(ask("GET", service.url + path).content)
    return folder


@pytest.fixture(scope="module")
def node() -> Path:
    """A folder with the programs and their npm packages."""

    def install(folder: Path) -> None:
        shutil.copytree(HERE, folder)
        run(program("npm"), "ci", "--ignore-scripts", "--no-audit", "--no-fund", folder=folder, skip=True)

    program("node")
    folder = kept("generated", (HERE / "package-lock.json").read_bytes(), install)
    for file in HERE.glob("*.*s*"):
        shutil.copy(file, folder)
    return folder


def heard(output: str) -> None:
    """Check that a program has printed the windows of the smoke alarm."""
    windows = [line.split() for line in output.splitlines()]
    assert float(windows[0][0]) == 0
    assert {"Fire_smoke_alarm", "Appliance_alarm", "Alarm"} & {name for _, _, name in windows}


def test_linters_report_only_accepted_findings(node: Path, documents: Path) -> None:
    output = run("node", "lint.mjs", *sorted(documents.glob("*.json")), folder=node)
    rules = {line.split()[0]: line for line in output.splitlines()}
    assert {rule: line for rule, line in rules.items() if rule not in ACCEPTED} == {}
    assert rules.keys() == ACCEPTED.keys(), "an entry of ACCEPTED is needed no more"


def test_generated_typescript_client_works(node: Path, documents: Path, service: Service) -> None:
    tools, document = node / "node_modules" / ".bin", documents / "openapi.json"
    # A field with a default may be omitted.
    run(tools / "openapi-typescript", "--default-non-nullable=false", "-o", "schema.d.ts", document, folder=node)
    run(tools / "tsc", "--outDir", "built", folder=node)
    heard(run("node", "built/main.js", service.url, service.key, RECORDING, folder=node))


def test_generated_go_client_works(documents: Path, service: Service, tmp_path: Path) -> None:
    go = program("go")
    tools = kept(
        "oapi-codegen", OAPI_CODEGEN, lambda folder: run(go, "install", OAPI_CODEGEN, skip=True, GOBIN=str(folder))
    )
    for name in ("go.mod", "main.go"):
        shutil.copy(HERE / name, tmp_path)
    (tmp_path / "earshot").mkdir()
    generate = ["-generate", "types,client", "-package", "earshot", "-o", "earshot/client.go"]
    run(tools / "oapi-codegen", *generate, documents / "openapi.json", folder=tmp_path)
    run(go, "mod", "tidy", folder=tmp_path)
    heard(run(go, "run", ".", service.url, service.key, RECORDING, folder=tmp_path))
