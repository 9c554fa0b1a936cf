"""`earshot explore`: the section that is heard, the table, the picture, and what it refuses."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

import msgspec
import numpy as np
import pytest
import soundfile
import typer
from typer.testing import CliRunner

from infra import models
from infra.cli import explore
from infra.examples import RECORDING
from infra.lab.explore import columns, picture, table
from infra.lab.explore.columns import Columns
from infra.lab.explore.section import AnalysedSection, analyse_section
from streams.audio.analysis import Analysis
from streams.audio.decode import DecodedAudio, decode_chunk
from streams.models.manifest import Waveform
from streams.models.protocol import Floats, SoundEngine
from streams.models.sound_engine import OnnxSoundEngine
from tests.unit.streams.models.models import MANIFEST
from topics.errors import AudioError, BadRequest
from topics.geometry import SESSIONS
from topics.media import parse
from topics.scores import ZERO, threshold


@cache
def engine() -> OnnxSoundEngine:
    return OnnxSoundEngine(models.directory())


def write(path: Path, samples: Floats, rate: int = 16_000) -> Path:
    soundfile.write(path, samples, rate)
    return path


def example() -> DecodedAudio:
    return decode_chunk(RECORDING.read_bytes(), parse("audio/flac"))


def test_hears_what_the_service_hears() -> None:
    heard = analyse_section(RECORDING, engine())
    analysis = Analysis(engine(), SESSIONS, example().rate)
    packed = analysis.feed(example().samples).packed + analysis.finish().packed
    assert heard.stored.tobytes() == packed
    assert heard.seconds == len(example().samples) / example().rate
    assert (heard.low_hz, heard.high_hz, heard.column_seconds) == (125.0, 7500.0, 0.01)
    assert abs(len(heard.spectrogram) * heard.column_seconds - heard.seconds) < 0.05


def test_a_section_is_the_file_that_was_cut_there(tmp_path: Path) -> None:
    samples = example().samples
    rate = example().rate
    cut = analyse_section(write(tmp_path / "cut.wav", samples[rate // 4 : rate * 2]), engine())
    section = analyse_section(write(tmp_path / "whole.wav", samples), engine(), 0.25, 2.0)
    assert section.start == 0.25
    assert section.seconds == cut.seconds == 1.75
    assert np.array_equal(section.stored, cut.stored)
    assert np.array_equal(section.spectrogram, cut.spectrogram)


def test_frames_of_a_sound_lie_where_it_is(tmp_path: Path) -> None:
    samples = np.zeros(48_000, np.float32)
    samples[32_000:36_000] = np.random.default_rng(1).normal(0, 0.1, 4_000)
    heard = analyse_section(write(tmp_path / "burst.wav", samples), engine())
    loud = np.flatnonzero(heard.spectrogram.mean(axis=1) > heard.spectrogram.mean()) * heard.column_seconds
    assert loud.min() == pytest.approx(2.0, abs=0.03)
    assert loud.max() == pytest.approx(2.25, abs=0.03)


class Listener(SoundEngine):
    """A model of waveforms that hears nothing."""

    manifest = msgspec.structs.replace(MANIFEST, input=Waveform(sample_rate=16_000, samples=15_600))

    def scores(self, patch: Floats) -> Floats:
        return np.zeros(2, np.float32)


def test_a_model_of_waveforms_has_a_spectrogram_too(tmp_path: Path) -> None:
    heard = analyse_section(
        write(tmp_path / "noise.wav", np.random.default_rng(1).normal(0, 0.1, 32_000).astype(np.float32)), Listener()
    )
    assert heard.spectrogram.shape[1] == 64
    assert abs(len(heard.spectrogram) * heard.column_seconds - 2.0) < 0.05


@pytest.mark.parametrize("samples", [1, 1_600, 16_000])
def test_short_and_silent(tmp_path: Path, samples: int) -> None:
    heard = analyse_section(write(tmp_path / "quiet.wav", np.zeros(samples, np.float32)), engine())
    assert len(heard.stored) == 1
    picture.save(heard, table.choose_columns(heard, 3), 0, "quiet.wav", tmp_path / "quiet.png")
    assert (tmp_path / "quiet.png").read_bytes().startswith(b"\x89PNG")


def test_a_section_after_the_end(tmp_path: Path) -> None:
    with pytest.raises(AudioError, match=r"there is no audio at 9 s"):
        analyse_section(RECORDING, engine(), 9.0)
    with pytest.raises(AudioError, match=r"nothing\.wav: No such file"):
        analyse_section(tmp_path / "nothing.wav", engine())
    (tmp_path / "text.wav").write_text("no sound at all")
    with pytest.raises(AudioError, match=r"text\.wav: .*no audio file"):
        analyse_section(tmp_path / "text.wav", engine())


def test_columns_stay_few_and_keep_peaks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "MOST", 8)
    frames = np.random.default_rng(1).normal(size=(301, 3)).astype(np.float32)
    collected = Columns(3)
    for start in range(0, len(frames), 7):
        collected.add(frames[start : start + 7])
    found = collected.finish()
    assert len(found) <= 24
    naive = [frames[at : at + collected.span].max(axis=0) for at in range(0, len(frames), collected.span)]
    assert np.array_equal(found, naive)


def test_lines() -> None:
    heard = analyse_section(RECORDING, engine())
    best = table.choose_columns(heard, 5)
    lines = table.tag_summaries(heard, best, 0)
    assert [line.peak for line in lines] == sorted((line.peak for line in lines), reverse=True)
    assert lines[0].tag in ("Appliance_alarm", "Fire_smoke_alarm")
    for line, column in zip(lines, best, strict=True):
        peak = heard.stored[:, column].max()
        assert line.share == (heard.stored[:, column] >= ZERO).mean()
        reporting = [step for step in range(-2, 3) if peak >= threshold(step)]
        assert line.reported_at == max(reporting, default=None)
    strict = table.tag_summaries(heard, best, 2)
    assert all(one.share <= other.share for one, other in zip(strict, lines, strict=True))


def test_tags_by_name() -> None:
    heard = analyse_section(RECORDING, engine())
    assert [line.tag for line in table.tag_summaries(heard, table.choose_columns(heard, 1, ["Rain", "Alarm"]), 0)] == [
        "Rain",
        "Alarm",
    ]
    with pytest.raises(BadRequest, match="no tag Rains; close: Rain"):
        table.choose_columns(heard, 1, ["Rains"])


def test_cells_are_reported_where_a_window_over_them_is() -> None:
    stored = np.array([[0], [200], [0], [0]], np.uint8)
    cells, seconds = picture.heat(stored)
    assert (cells[:, 0].tolist(), seconds) == ([0, 200, 200, 0, 0], 0.5)
    cells, seconds = picture.heat(np.repeat(stored, 2_000, axis=0))
    assert len(cells) <= picture.MOST_CELLS
    assert seconds * len(cells) >= 4_000.5
    assert picture.runs(cells[:, 0] >= ZERO) == [(333, 667)]


def long_recording() -> AnalysedSection:
    heard = analyse_section(RECORDING, engine())
    return msgspec.structs.replace(
        heard, stored=np.tile(heard.stored, (9_000, 1)), seconds=0.5 * 9_000 * len(heard.stored)
    )


def test_the_same_picture_again(tmp_path: Path) -> None:
    heard = long_recording()
    digests = set()
    for number in range(2):
        path = tmp_path / f"{number}.svg"
        picture.save(heard, table.choose_columns(heard, 4), -1, "$odd_{name 소리.wav", path)
        digests.add(hashlib.sha256(path.read_bytes()).hexdigest())
    assert len(digests) == 1
    assert b"<dc:date>" not in path.read_bytes()


@pytest.fixture
def app(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> typer.Typer:
    monkeypatch.setenv("EARSHOT_DATA", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    made = typer.Typer()
    explore.register(made)
    return made


def test_the_command(app: typer.Typer, tmp_path: Path) -> None:
    before = set(tmp_path.iterdir())
    result = CliRunner().invoke(app, [str(RECORDING), "--tags", "Alarm,Rain"], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    assert [line.split()[0] for line in result.stdout.splitlines()] == ["tag", "Alarm", "Rain"]
    assert set(tmp_path.iterdir()) == before


def test_the_command_draws_where_it_is_told(app: typer.Typer, tmp_path: Path) -> None:
    drawn = [str(RECORDING), "--tags", "Alarm", "-o", "alarm.png"]
    result = CliRunner().invoke(app, drawn, catch_exceptions=False)
    assert result.stdout.splitlines()[-1] == "alarm.png"
    assert (tmp_path / "alarm.png").stat().st_size > 10_000
    (tmp_path / "alarm.png").write_text("mine")
    result = CliRunner().invoke(app, drawn)
    assert str(result.exception) == "alarm.png is there already: --force replaces it"
    assert (tmp_path / "alarm.png").read_text() == "mine"
    assert CliRunner().invoke(app, [*drawn, "--force"]).exit_code == 0
    assert (tmp_path / "alarm.png").stat().st_size > 10_000


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        (["-o", "out.jpg"], "out.jpg: a picture ends in .png or .svg"),
        (["--start", "3", "--end", "2"], "--end 2 is not after --start 3"),
        (["-o", "no/where.png"], "no/where.png: No such file"),
    ],
)
def test_the_command_refuses(app: typer.Typer, options: list[str], fault: str) -> None:
    result = CliRunner().invoke(app, [str(RECORDING), *options])
    assert result.exit_code == 1
    assert fault in str(result.exception)
