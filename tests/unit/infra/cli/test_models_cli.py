"""`earshot models`: as text and as JSON, errors in one line, and the current model stays until another is verified."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import typer

from infra import cli
from infra import models as bundled
from infra.cli import models as commands
from streams.models import manifest
from tests.unit.infra.conftest import app_of, invoked
from tests.unit.streams.models import models

pytestmark = pytest.mark.slow

YAMNET = manifest.read(bundled.directory(bundled.YAMNET)).model_id
DEFAULT = manifest.read(bundled.directory()).model_id


@pytest.fixture
def app(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> typer.Typer:
    monkeypatch.setenv("EARSHOT_DATA", str(tmp_path / "data"))
    return app_of(commands)


@pytest.fixture
def source(tmp_path: Path) -> str:
    (tmp_path / "given").mkdir()
    return str(models.write(tmp_path / "given"))


def called(app: typer.Typer, *arguments: str) -> Any:
    """Return the output of a command with --json, rows by model."""
    found = json.loads(invoked(app, "models", *arguments, "--json").stdout)
    return {row["model"]: row for row in found} if isinstance(found, list) else found


def test_commands_print_json(app: typer.Typer, source: str) -> None:
    first = called(app, "list")[DEFAULT]
    assert (first["state"], first["from"], first["kind"]) == ("in use", "bundled", "sound-events")
    model = called(app, "add", source)["model"]
    assert called(app, "use", "tiny") == {"in_use": model}
    rows = called(app, "list")
    assert rows[model] | {"mb": None} == {
        "model": model,
        "kind": "sound-events",
        "licence": "CC0-1.0",
        "input": "800 samples, 1 kHz",
        "tags": 2,
        "mb": None,
        "from": "added",
        "state": "in use",
        "fault": None,
    }
    checked = called(app, "check", "tiny")
    assert (checked["model"], checked["result"]) == (model, "usable")
    shown = called(app, "show", "tiny")
    assert (shown["model"], shown["in_use"]) == (model, True)
    assert [tag["name"] for tag in shown["manifest"]["tags"]] == ["First", "Any"]
    called(app, "use", "yamnet")
    assert called(app, "remove", "--yes", "tiny") == {"removed": model}
    assert model not in called(app, "list")


def test_commands_print_text(app: typer.Typer, source: str) -> None:
    invoked(app, "models", "add", source, "--name", "mine")
    lines = invoked(app, "models", "list").stdout.splitlines()
    assert lines[0].split() == ["model", "kind", "licence", "input", "tags", "mb", "from", "state"]
    assert lines[-1].startswith("mine@")
    shown = invoked(app, "models", "show", "yamnet").stdout
    for known in (YAMNET, "Apache-2.0", "975 ms", "400 samples every 160, 10 ms", "521", "Dog_bark"):
        assert known in shown
    assert "second" not in shown
    for known in ("ced-tiny", "second.onnx, 5.98 MB", "in streams"):
        assert known in invoked(app, "models", "show", "yamnet-ced").stdout


def test_model_setting_overrides_chosen_model(app: typer.Typer, source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    called(app, "add", source)
    monkeypatch.setenv("EARSHOT_MODEL", "yamnet")
    result = invoked(app, "models", "use", "tiny", "--json")
    assert list(json.loads(result.stdout)) == ["chosen"]
    assert "EARSHOT_MODEL=yamnet is set" in result.stderr


@pytest.mark.parametrize("arguments", [("show", "none"), ("check", "none"), ("use", "none"), ("add", "none")])
def test_errors_are_one_line(
    arguments: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("EARSHOT_DATA", str(tmp_path))
    monkeypatch.setattr(cli, "COMMANDS", {"models": ["models"]})
    monkeypatch.setattr(sys, "argv", ["earshot", "models", *arguments])
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    assert stopped.value.code == 1
    err = capsys.readouterr().err
    assert err.startswith("earshot: ")
    assert err.count("\n") == 1
