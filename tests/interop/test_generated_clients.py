"""Clients of other languages, generated from a running service's document, stream a file; linters check the document.

The tools come from npm and Go. They are installed once, into `.venv/.generated`; tests are skipped with a reason if
they are unavailable.
"""

import os
import shutil
import subprocess
from hashlib import blake2b
from pathlib import Path
from typing import Final

import pytest

from infra.examples import RECORDING
from tests.contract.api import Service
from tests.process import ask

#: Building Go's generator takes a minute of processor time, once.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

HERE: Final = Path(__file__).parent / "generated"
KEPT: Final = HERE.parent.parent.parent / ".venv" / ".generated"
OAPI_CODEGEN: Final = "github.com/oapi-codegen/oapi-codegen/v2/cmd/oapi-codegen@v2.8.2"
INSTALL_SECONDS: Final = 1500
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
    if not (shutil.which("node") and shutil.which("npm")):
        pytest.skip("there is no node here")
    lock = blake2b((HERE / "package-lock.json").read_bytes(), digest_size=8).hexdigest()
    folder = KEPT / f"node-{lock}"
    if not (folder / "whole").exists():
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(HERE, folder)
        done = _run(["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"], folder)
        if done.returncode:
            pytest.skip(f"npm cannot install the tools here: {' '.join(done.stderr.split())[-200:]}")
        (folder / "whole").touch()
    for file in HERE.glob("*.*s*"):
        shutil.copy(file, folder)
    return folder


def _run(command: list[str | Path], folder: Path, **more: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, **more}
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=INSTALL_SECONDS)


def _output(command: list[str | Path], folder: Path) -> str:
    done = _run(command, folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def heard(output: str) -> None:
    """Check that a program has printed the windows of the smoke alarm."""
    windows = [line.split() for line in output.splitlines()]
    assert float(windows[0][0]) == 0
    assert {"Fire_smoke_alarm", "Appliance_alarm", "Alarm"} & {name for _, _, name in windows}


def test_linters_report_only_accepted_findings(node: Path, documents: Path) -> None:
    output = _output(["node", "lint.mjs", *sorted(documents.glob("*.json"))], node)
    rules = {line.split()[0]: line for line in output.splitlines()}
    assert {rule: line for rule, line in rules.items() if rule not in ACCEPTED} == {}
    assert rules.keys() == ACCEPTED.keys(), "an entry of ACCEPTED is needed no more"


def test_generated_typescript_client_works(node: Path, documents: Path, service: Service) -> None:
    tools = node / "node_modules" / ".bin"
    # A field with a default may be omitted.
    generate: list[str | Path] = [tools / "openapi-typescript", "--default-non-nullable=false", "-o", "schema.d.ts"]
    _output([*generate, documents / "openapi.json"], node)
    _output([tools / "tsc", "--outDir", "built"], node)
    heard(_output(["node", "built/main.js", service.url, service.key, RECORDING], node))


def test_generated_go_client_works(documents: Path, service: Service, tmp_path: Path) -> None:
    if not shutil.which("go"):
        pytest.skip("there is no go here")
    KEPT.mkdir(parents=True, exist_ok=True)
    tool = KEPT / OAPI_CODEGEN.rpartition("/")[2]
    if not tool.exists():
        done = _run(["go", "install", OAPI_CODEGEN], tmp_path, GOBIN=str(KEPT))
        if done.returncode:
            pytest.skip(f"go cannot install the generator here: {' '.join(done.stderr.split())[-200:]}")
        (KEPT / "oapi-codegen").rename(tool)
    for name in ("go.mod", "main.go"):
        shutil.copy(HERE / name, tmp_path)
    (tmp_path / "earshot").mkdir()
    generate: list[str | Path] = [tool, "-generate", "types,client", "-package", "earshot", "-o", "earshot/client.go"]
    _output([*generate, documents / "openapi.json"], tmp_path)
    _output(["go", "mod", "tidy"], tmp_path)
    heard(_output(["go", "run", ".", service.url, service.key, RECORDING], tmp_path))
