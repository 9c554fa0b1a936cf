"""Sound events of recordings: the windows of `Analysis`, in order, up to a break in the audio."""

from __future__ import annotations

import asyncio
import zlib
from pathlib import Path
from typing import ClassVar
from unittest import mock

import msgspec
import numpy as np
import pytest
import soundfile

from streams.audio import decode
from streams.audio.analysis import Analysis
from streams.audio.decode import OpenFile
from streams.models.loaded_models import LoadedModels
from streams.models.protocol import Floats, SoundEngine
from streams.services import sound
from streams.services.service import RunSummary
from streams.services.sound import SegmentReader, SoundService
from streams.workers.workers import Workers
from tests import naive
from tests.audio import encoded, noise
from tests.unit.streams.audio.engines import SAMPLES, TAGS, Fingerprint
from tests.unit.streams.jobs.runs import Run
from tests.unit.streams.sessions.engines import Faulty, Gated, Meeting
from tests.unit.streams.workers.double import Death, WorkerThreads
from tests.waiting import until
from topics import media
from topics.errors import AudioError, EarshotError, EngineError, Unavailable
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
        open_file: OpenFile = decode.open_file,
    ) -> None:
        self.engine = engine or Fingerprint()
        self.work = Run(path, content_type)
        model = self.engine.manifest.model_id
        self.work.accepted = msgspec.structs.replace(self.work.accepted, model=model)
        self.threads = WorkerThreads(lambda: [self.engine])
        self.workers = Workers(workers, self.threads.fork)
        self.service = SoundService(LoadedModels(self.engine), self.workers, open_file)
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
    monkeypatch.setattr(sound, "BLOCK_SAMPLES", 5000)
    monkeypatch.setattr(sound, "SEGMENT_WINDOWS", 3)
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


@pytest.mark.parametrize(("kind", "subtype"), [("FLAC", "PCM_16"), ("AIFF", "PCM_24"), ("MP3", "MPEG_LAYER_III")])
@pytest.mark.usefixtures("small")
def test_containers_and_rates(tmp_path: Path, kind: str, subtype: str) -> None:
    path = written(tmp_path / "a", noise(2 * round(7.3 * 44_100)).reshape(-1, 2), 44_100, kind, subtype)
    played = Performance(path).play()
    want = truth(decoded(path), 44_100)
    # The two MP3 readers may disagree on the end of the last frame.
    agreed = len(want) - (TAGS if kind == "MP3" else 0)
    assert len(played.scores) == len(want) == 7 * TAGS
    assert played.scores[:agreed] == want[:agreed]


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
async def test_read_ahead_is_limited(tmp_path: Path) -> None:
    engine = Gated()
    performance = Performance(written(tmp_path / "a", noise(200 * RATE)), engine=engine, workers=1)
    reads = mock.patch.object(SegmentReader, "next", autospec=True, side_effect=SegmentReader.next)
    scores = mock.patch.object(performance.workers, "score", wraps=performance.workers.score)
    with reads as read, scores as score:
        run = asyncio.create_task(performance.perform())
        await until(lambda: score.call_count >= 3)
        # The threads that read are free: another read would have begun before this.
        await performance.service._in(int)
        begun = read.call_count
        engine.gate.set()
        await run
    assert begun == 3
    assert len(performance.scores) == 199 * TAGS


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


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("workers", [1, 3])
def test_work_of_dead_workers_is_rescored(tmp_path: Path, workers: int) -> None:
    """Each dies every few patches; another one scores its pending work."""
    samples = noise(60 * RATE)

    class Dying(Fingerprint):
        """Kills its worker at some patches, on first sight.

        Their levels choose them, in any order of threads. No segment has two of them, so none is in three deaths.
        """

        met: ClassVar[set[int]] = set()

        def scores(self, patch: Floats) -> Floats:
            scores = super().scores(patch)
            name = zlib.crc32(patch.tobytes())
            if int(-patch.sum(dtype=np.float64)) % 10 == 9 and name not in self.met:
                self.met.add(name)
                raise Death
            return scores

    played = Performance(written(tmp_path / "a", samples), engine=Dying(), workers=workers).play()
    assert played.error == ""
    assert played.scores == truth(samples)
    assert played.workers.deaths >= 5


# --- faults ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("coder", ["VORBIS", "OPUS"])
@pytest.mark.usefixtures("small")
def test_windows_before_a_lost_page_are_emitted(tmp_path: Path, coder: str) -> None:
    path = written(tmp_path / "a", noise(60 * RATE), kind="OGG", subtype=coder)
    samples, data = decoded(path), bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)
    played = Performance(path).play()
    at = float(played.error.removeprefix("the audio breaks at ").split()[0])
    assert 25.0 < at < 33.0
    assert played.error == f"the audio breaks at {at} s: a page of the Ogg file is damaged or missing"
    assert int(at) - 2 <= len(played.scores) // TAGS <= int(at)
    assert played.scores == truth(samples)[: len(played.scores)]


@pytest.mark.usefixtures("small")
def test_windows_before_a_break_are_emitted(tmp_path: Path) -> None:
    path = written(tmp_path / "a", noise(30 * RATE), kind="FLAC", subtype="PCM_16")
    samples, data = decoded(path), path.read_bytes()
    path.write_bytes(data[: len(data) // 2] + bytes(20_000) + data[len(data) // 2 + 20_000 :])
    played = Performance(path).play()
    at = float(played.error.removeprefix("the audio breaks at ").split()[0])
    assert 14.0 < at < 16.0
    assert played.error == f"the audio breaks at {at} s: flac decoder lost sync"
    # The windows complete at that point.
    assert int(at) - 2 <= len(played.scores) // TAGS <= int(at)
    assert played.scores == truth(samples)[: len(played.scores)]


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
    with pytest.raises(AudioError, match=r"declared .*not a supported audio file"):
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
    recording = SegmentReader(tmp_path / "missing", media.parse(ANY), Fingerprint().manifest, decode.open_file)
    with pytest.raises(Unavailable, match="the spool cannot be read: No such file"):
        recording.next()
    recording.close()
