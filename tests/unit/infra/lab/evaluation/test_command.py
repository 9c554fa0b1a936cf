"""`earshot evaluate` and `earshot models calibrate` on a user's recordings."""

import json
import shutil
from pathlib import Path

import pytest
import typer

from infra import models
from infra.cli import evaluate
from infra.cli import models as models_commands
from tests.conftest import ROOT
from tests.unit.infra.conftest import app_of, invoked
from topics.errors import BadRequest, EarshotError

pytestmark = pytest.mark.slow

ALARM = ROOT / "infra" / "examples" / "smoke-alarm.flac"


@pytest.fixture(scope="module")
def app() -> typer.Typer:
    return app_of(evaluate, models_commands)


@pytest.fixture
def mine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """The example as two recordings, a file that does not decode, and an unknown label."""
    monkeypatch.setenv("EARSHOT_DATA", str(tmp_path / "data"))
    for name in ("a.flac", "b.flac"):
        shutil.copyfile(ALARM, tmp_path / name)
    (tmp_path / "c.wav").write_bytes(b"RIFF no more")
    table = tmp_path / "clips.csv"
    table.write_text("file,label\na.flac,beeping\nb.flac,beeping\nc.wav,Rain\nd.wav,zebra\n")
    labels = tmp_path / "labels.csv"
    labels.write_text("label,tags,tolerated\nbeeping,Fire_smoke_alarm,Alarm\n")
    return ["--recordings", str(tmp_path), "--csv", str(table), "--labels", str(labels)]


def test_evaluate_prints_json(app: typer.Typer, mine: list[str]) -> None:
    (report,) = json.loads(invoked(app, "evaluate", *mine, "--json").stdout)
    assert report["figures"]["clip_recall"] == 1.0
    (line,) = report["lines"]
    assert line["recordings"] == 2
    assert [skipped["name"] for skipped in report["skipped"]] == ["d.wav", "c.wav"]
    (tag,) = [tag for tag in report["tags"] if tag["clips"]]
    assert (tag["tag"], tag["clips"], tag["found"]) == ("Fire_smoke_alarm", 2, 2)


def test_evaluate_prints_text(app: typer.Typer, mine: list[str]) -> None:
    done = invoked(app, "evaluate", *mine, "--model", "yamnet")
    assert "yamnet@" in done.stdout
    assert "2 recordings were skipped:\n  d.wav: unknown label zebra\n  c.wav: " in done.stdout
    assert "0 = only negatives" in done.stdout


def test_calibrate_adds_model(app: typer.Typer, mine: list[str], tmp_path: Path) -> None:
    made = json.loads(invoked(app, "models", "calibrate", "yamnet", *mine, "--json").stdout)["model"]
    manifest = json.loads((tmp_path / "data" / "models" / made / "manifest.json").read_text())
    assert manifest["name"] == "yamnet"
    (alarm,) = [tag for tag in manifest["tags"] if tag["name"] == "Fire_smoke_alarm"]
    assert alarm["clips"] == 2


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        (["evaluate"], "give --data"),
        (["evaluate", "--recordings", "."], "--recordings needs --csv FILE"),
        (["evaluate", "--recordings", ".", "--csv", "none.csv", "--write"], "--write needs --data"),
        (["evaluate", "--data", ".", "--labels", "none.csv"], "--labels needs --recordings"),
        (["evaluate", "--data", ".", "--csv", "none.csv"], "--csv needs --recordings"),
        (["evaluate", "--data", ".", "--recordings", ".", "--csv", "none.csv"], "not both"),
        (["evaluate", "--card", "--model", "yamnet"], "--model needs --data"),
        (["evaluate", "--card", "--json"], "--json needs --data"),
        (["evaluate", "--data", "none"], "none/readings/readings.csv: No such file"),
        (["evaluate", "--recordings", ".", "--csv", "none.csv"], "none.csv: No such file"),
        (["models", "calibrate", "nonesuch", "--recordings", ".", "--csv", "none.csv"], "there is no model nonesuch"),
    ],
)
def test_errors_are_one_line(
    app: typer.Typer, arguments: list[str], fault: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("EARSHOT_DATA", str(tmp_path))
    with pytest.raises(EarshotError) as refused:
        invoked(app, *arguments)
    assert fault in str(refused.value)
    assert "\n" not in str(refused.value)


def test_figures_are_written_to_bundled_models_only(app: typer.Typer, tmp_path: Path) -> None:
    mine = shutil.copytree(models.directory("sed_mini"), tmp_path / "mine")
    with pytest.raises(BadRequest, match="mine is not a bundled model"):
        invoked(app, "evaluate", "--data", ".", "--model", mine, "--write")


def test_card_prints_model_table(app: typer.Typer) -> None:
    assert invoked(app, "evaluate", "--card").stdout.startswith("| sound events | `yamnet-ced` |")
