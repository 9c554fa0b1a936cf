"""`earshot explore`: the analysed section, the table, the picture, and its refusals."""

from functools import cache
from pathlib import Path

import numpy as np
import pytest
import soundfile
import typer
from typer.testing import CliRunner

from infra import models
from infra.cli import explore
from infra.examples import RECORDING
from infra.lab.explore import table
from infra.lab.explore.section import analyse_section
from streams.audio.analysis import Analysis
from streams.audio.decode import DecodedAudio, decode_chunk
from streams.models.protocol import Floats
from streams.models.sound_engine import OnnxSoundEngine
from tests.unit.infra.conftest import app_of, invoked
from topics.geometry import SESSIONS
from topics.media import parse

pytestmark = pytest.mark.slow


@cache
def engine() -> OnnxSoundEngine:
    return OnnxSoundEngine(models.directory(models.YAMNET))


def write(path: Path, samples: Floats, rate: int = 16_000) -> Path:
    soundfile.write(path, samples, rate)
    return path


def example() -> DecodedAudio:
    return decode_chunk(RECORDING.read_bytes(), parse("audio/flac"))


def test_analysis_matches_service() -> None:
    heard = analyse_section(RECORDING, engine())
    analysis = Analysis(engine(), SESSIONS, example().rate, recording=True)
    packed = analysis.feed(example().samples) + analysis.finish()
    assert heard.stored.tobytes() == packed
    assert heard.seconds == len(example().samples) / example().rate
    assert (heard.low_hz, heard.high_hz, heard.column_seconds) == (125.0, 7500.0, 0.01)
    assert abs(len(heard.spectrogram) * heard.column_seconds - heard.seconds) < 0.05


@pytest.mark.parametrize("samples", [1, 1_600, 16_000])
def test_short_or_silent_recording_is_drawn(tmp_path: Path, samples: int) -> None:
    from infra.lab.explore import picture  # A slow import, and every process of a run collects this file.

    heard = analyse_section(write(tmp_path / "quiet.wav", np.zeros(samples, np.float32)), engine())
    assert len(heard.stored) == 1
    picture.save(heard, table.choose_columns(heard, 3), 0, "quiet.wav", tmp_path / "quiet.png")
    assert (tmp_path / "quiet.png").read_bytes().startswith(b"\x89PNG")


@pytest.fixture
def app(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> typer.Typer:
    monkeypatch.setenv("EARSHOT_DATA", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    return app_of(explore)


def test_command_prints_tags_and_writes_no_file(app: typer.Typer, tmp_path: Path) -> None:
    before = set(tmp_path.iterdir())
    result = invoked(app, RECORDING, "--tags", "Alarm,Rain")
    assert [line.split()[0] for line in result.stdout.splitlines()] == ["tag", "Alarm", "Rain"]
    assert set(tmp_path.iterdir()) == before


def test_command_overwrites_picture_only_with_force(app: typer.Typer, tmp_path: Path) -> None:
    drawn = [str(RECORDING), "--tags", "Alarm", "-o", "alarm.png"]
    result = invoked(app, *drawn)
    assert result.stdout.splitlines()[-1] == "alarm.png"
    assert (tmp_path / "alarm.png").stat().st_size > 10_000
    (tmp_path / "alarm.png").write_text("mine")
    result = CliRunner().invoke(app, drawn)
    assert str(result.exception) == "alarm.png is there already: --force replaces it"
    assert (tmp_path / "alarm.png").read_text() == "mine"
    invoked(app, *drawn, "--force")
    assert (tmp_path / "alarm.png").stat().st_size > 10_000


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        (["-o", "out.jpg"], "out.jpg: a picture ends in .png or .svg"),
        (["--start", "3", "--end", "2"], "--end 2 is not after --start 3"),
        (["--start", "9"], "there is no audio at 9 s"),
        (["--tags", "Rains"], "no tag Rains; close: Rain"),
        (["-o", "no/where.png"], "no/where.png: No such file"),
    ],
)
def test_command_rejects_invalid_options(app: typer.Typer, options: list[str], fault: str) -> None:
    result = CliRunner().invoke(app, [str(RECORDING), *options])
    assert result.exit_code == 1
    assert fault in str(result.exception)
