"""Sound events of recordings: the windows of `Analysis`, in order, up to a break in the audio."""

from __future__ import annotations

import asyncio
import math
import re
from pathlib import Path
from unittest import mock

import msgspec
import numpy as np
import pytest
import soundfile

from streams.audio import decode
from streams.audio.analysis import Analysis
from streams.models.loaded_models import LoadedModels
from streams.models.protocol import Floats, SoundEngine
from streams.services import sound
from streams.services.service import RunSummary
from streams.services.sound import SoundService
from streams.workers import recordings
from streams.workers.workers import Workers
from tests import naive
from tests.audio import encoded, noise
from tests.unit.streams.audio.engines import SAMPLES, TAGS, Fingerprint
from tests.unit.streams.jobs.runs import Run
from tests.unit.streams.sessions.engines import Faulty, Gated, Meeting
from tests.unit.streams.workers.double import WorkerThreads
from tests.waiting import turn, until
from topics.errors import AudioError, EarshotError, EngineError
from topics.geometry import SENSE, SESSIONS
from topics.hearing import Hearing
from topics.jobs import payloads

RATE = 8000
ANY = "application/octet-stream"
RAW = f"audio/x-raw; rate={RATE}; format=s16"


def truth(samples: Floats, rate: int = RATE, engine: SoundEngine | None = None) -> bytes:
    """Return the windows of a session, merged: stored bytes grow with the score."""
    analysis = Analysis(engine or Fingerprint(), SESSIONS, rate)
    short = np.frombuffer(analysis.feed(samples) + analysis.finish(), np.uint8).reshape(-1, TAGS)
    count = naive.window_count(SENSE, len(samples), rate)
    ends = [*range(2, 2 * count, 2), len(short)] if count else []
    return b"".join(short[2 * number : end].max(axis=0).tobytes() for number, end in enumerate(ends))


def written(path: Path, samples: Floats, rate: int = RATE, kind: str = "WAV", subtype: str = "FLOAT") -> Path:
    path.write_bytes(encoded(samples, rate, kind, subtype))
    return path


def decoded(path: Path) -> Floats:
    samples: Floats = soundfile.read(path, dtype="float32", always_2d=True)[0]
    return samples[:, 0] if samples.shape[1] == 1 else (samples[:, 0] + samples[:, 1]) / np.float32(2)


class Performance:
    """One analysed recording: its results, and its end."""

    def __init__(
        self,
        path: Path,
        content_type: str = ANY,
        engine: SoundEngine | None = None,
        workers: int = 2,
    ) -> None:
        self.engine = engine or Fingerprint()
        self.work = Run(path, content_type)
        model = self.engine.manifest.model_id
        self.work.accepted = msgspec.structs.replace(self.work.accepted, model=model)
        self.threads = WorkerThreads(lambda: [self.engine])
        self.workers = Workers(workers, self.threads.fork)
        self.service = SoundService(LoadedModels(self.engine), self.workers)
        self.done: RunSummary | None = None
        self.error = ""

    def play(self) -> Performance:
        try:
            self.done = asyncio.run(self.perform())
        except EarshotError as error:
            self.error = str(error)
        return self

    async def perform(self) -> RunSummary:
        """Run in one loop, to which working threads report."""
        await self.workers.start()
        try:
            return await self.service.perform(self.work)
        finally:
            await self.service.close()
            await self.workers.stop()

    @property
    def scores(self) -> bytes:
        """Return all windows, after checking that they are consecutive."""
        packed = b""
        for data in self.work.emitted:
            portion = payloads.sounds(data)
            assert (portion.first, portion.tags) == (len(packed) // TAGS, TAGS)
            assert portion.model == self.engine.manifest.model_id
            packed += portion.scores
        return packed


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make blocks, batches and portions so small that a short recording has many."""
    monkeypatch.setattr(decode, "BLOCK_SAMPLES", 5000)
    monkeypatch.setattr(recordings, "BLOCK_SAMPLES", 5000)
    monkeypatch.setattr(recordings, "SEGMENT_WINDOWS", 3)
    monkeypatch.setattr(sound, "PORTION_WINDOWS", 8)


@pytest.mark.parametrize("seconds", [0.0002, 0.5, 2.0, 2.03, 21.7])
@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.usefixtures("small")
def test_scores_equal_session_analysis(tmp_path: Path, seconds: float, workers: int) -> None:
    samples = noise(round(seconds * RATE))
    played = Performance(written(tmp_path / "a", samples), workers=workers).play()
    assert played.scores == truth(samples)
    # A length of 0 would be unknown, and the only window of such a recording would end after two seconds.
    assert played.done == RunSummary(played.engine.manifest.model_id, max(1, len(samples) * 1000 // RATE))


@pytest.mark.usefixtures("small")
def test_waveform_model_scores_every_half_second(tmp_path: Path) -> None:
    engine, samples = Fingerprint(SAMPLES), noise(12 * RATE)
    played = Performance(written(tmp_path / "a", samples), engine=engine).play()
    assert played.scores == truth(samples, engine=Fingerprint(SAMPLES))
    assert engine.asked == 23, "every half second"


@pytest.mark.usefixtures("small")
def test_raw_audio_reports_progress(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes((noise(30 * RATE) * 32767).astype("<i2").tobytes())
    played = Performance(path, RAW).play()
    done = played.work.done
    assert len(done) >= 3
    assert done == sorted(done)
    assert 0.25 < done[0] < done[-2] < 1.0 == done[-1]


def test_portion_holds_many_windows(tmp_path: Path) -> None:
    played = Performance(written(tmp_path / "a", noise(60 * RATE))).play()
    assert len(played.work.emitted) == 1
    assert len(played.scores) == 59 * TAGS


# --- workers --------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("small")
def test_one_recording_uses_all_workers(tmp_path: Path) -> None:
    samples = noise(30 * RATE)
    assert Performance(written(tmp_path / "a", samples), engine=Meeting()).play().scores == truth(samples)


@pytest.mark.usefixtures("small")
async def test_segments_asked_for_ahead_are_limited(tmp_path: Path) -> None:
    engine = Gated()
    performance = Performance(written(tmp_path / "a", noise(200 * RATE)), engine=engine, workers=1)
    with mock.patch.object(performance.workers, "score", wraps=performance.workers.score) as score:
        run = asyncio.create_task(performance.perform())
        await asyncio.to_thread(engine.begun.wait, 10)
        await turn()
        begun = score.call_count
        engine.gate.set()
        await run
    assert begun == 3
    assert len(performance.scores) == 199 * TAGS


async def test_recordings_share_the_workers(tmp_path: Path) -> None:
    """Each has all of them while it is alone, and no worker remains."""
    performance = Performance(written(tmp_path / "a", noise(9 * RATE)), engine=Gated(), workers=4)
    opened = mock.patch.object(performance.workers, "open_slot", wraps=performance.workers.open_slot)
    await performance.workers.start()
    with opened as opens:
        runs = [asyncio.create_task(performance.service.perform(performance.work))]
        await until(lambda: opens.call_count == 4)
        runs.append(asyncio.create_task(performance.service.perform(performance.work)))
        await until(lambda: opens.call_count == 6)
        performance.engine.gate.set()  # type: ignore[attr-defined]
        await asyncio.gather(*runs)
    assert len(performance.workers.slots()) == 4
    await performance.service.close()
    await performance.workers.stop()


@pytest.mark.usefixtures("small")
async def test_cancelled_run_stops(tmp_path: Path) -> None:
    engine = Gated()
    performance = Performance(written(tmp_path / "a", noise(200 * RATE)), engine=engine)
    run = asyncio.create_task(performance.perform())
    await asyncio.to_thread(engine.begun.wait, 5)
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    engine.gate.set()
    assert engine.asked < 20
    assert performance.work.emitted == []


# --- faults ---------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("small")
def test_silence_stands_for_a_lost_page(tmp_path: Path) -> None:
    """No model hears its windows, and nobody pays for it."""
    path = written(tmp_path / "a", noise(60 * RATE), kind="OGG", subtype="VORBIS")
    whole, data = Performance(path).play().scores, bytearray(path.read_bytes())
    for page in [page.start() for page in re.finditer(b"OggS", data)][20:26]:
        data[page + 100] ^= 0xFF
    path.write_bytes(data)
    played = Performance(path).play()
    assert played.done is not None
    assert played.done.audio_ms == pytest.approx(60_000, abs=1)
    assert 3000 < played.done.silence_ms < 10_000
    (warning,) = played.done.warnings
    match = re.fullmatch(r"the Ogg file has no audio from ([\d.]+) to ([\d.]+) s: silence stands there", warning)
    assert match is not None
    first, end = float(match[1]), float(match[2])
    assert end - first == pytest.approx(played.done.silence_ms / 1000, abs=0.1)
    scores = played.scores
    assert len(scores) == len(whole)
    assert not any(scores[math.ceil(first + 1) * TAGS : math.floor(end - 2) * TAGS])
    assert scores[: math.floor(first - 3) * TAGS] == whole[: math.floor(first - 3) * TAGS]
    assert scores[math.ceil(end + 2) * TAGS :] == whole[math.ceil(end + 2) * TAGS :]


@pytest.mark.usefixtures("small")
def test_windows_before_a_break_are_emitted(tmp_path: Path) -> None:
    broken = noise(30 * RATE)
    broken[15 * RATE :] = np.nan
    path = written(tmp_path / "a", broken, subtype="FLOAT")
    played = Performance(path).play()
    fault = "the float samples are not all finite numbers: one is nan"
    assert played.error == f"the audio breaks at 15.0 s: {fault}"
    # The windows complete at that point.
    assert 13 <= len(played.scores) // TAGS <= 15
    assert played.scores == truth(noise(30 * RATE))[: len(played.scores)]


@pytest.mark.parametrize("kind", ["WAV", "FLAC"])
def test_truncated_recording_is_scored_with_warning(tmp_path: Path, kind: str) -> None:
    path = written(tmp_path / "a", noise(20 * RATE), kind=kind, subtype="PCM_16")
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    played = Performance(path).play()
    assert played.done is not None
    (warning,) = played.done.warnings
    ends = 10.0 if kind == "WAV" else 9.7  # FLAC ends with a whole frame of 4096 samples.
    assert warning == f"the audio ends at {ends} s, and its header says 20.0 s: it was cut off"
    assert len(played.scores) == 9 * TAGS


def test_invalid_audio_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"hello, is this audio?")
    performance = Performance(path)
    with pytest.raises(AudioError, match=r"not a supported audio file"):
        asyncio.run(performance.perform())
    assert performance.work.emitted == []


@pytest.mark.usefixtures("small")
def test_engine_failure_becomes_error(tmp_path: Path) -> None:
    engine = Faulty(EngineError("the model failed"))
    assert Performance(written(tmp_path / "a", noise(60 * RATE)), engine=engine).play().error == "the model failed"


def test_stand_in_model_is_a_warning(tmp_path: Path) -> None:
    performance = Performance(written(tmp_path / "a", noise(3 * RATE)))
    performance.work.accepted = msgspec.structs.replace(performance.work.accepted, hearing=Hearing(stands_in=True))
    done = performance.play().done
    assert done is not None
    name = performance.engine.manifest.name
    assert done.warnings == (f"heard by {name}: the intended model cannot be used",)


def test_missing_model_is_named_in_error(tmp_path: Path) -> None:
    performance = Performance(written(tmp_path / "a", noise(3 * RATE)))
    performance.work.accepted = msgspec.structs.replace(performance.work.accepted, model="other@0123")
    assert "other@0123" in performance.play().error


def test_unreadable_spool_raises_unavailable(tmp_path: Path) -> None:
    assert "the spool cannot be read: No such file" in Performance(tmp_path / "missing").play().error
