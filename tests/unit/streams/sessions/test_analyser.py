"""The analyser: order, concurrent sessions, and faults."""

import asyncio
import io
import math
import tempfile
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import msgspec
import numpy as np
import pytest

from streams.embedded.errors import LogDamaged
from streams.log import RECORD_COST
from streams.models.protocol import Floats
from streams.sessions import audio as audio_source
from streams.sessions import files
from streams.workers import process
from tests.audio import encoded
from tests.unit.streams.audio.engines import TAGS, Fingerprint
from tests.unit.streams.sessions.engines import Faulty, Gated, Meeting
from tests.unit.streams.sessions.studio import FILE, STREAM, Studio, pieces, playing, sound, truth
from tests.waiting import until
from topics.errors import EngineError, RecordError, Unavailable
from topics.keys import new_id
from topics.sessions.records import Chunk, Opened, Sealed, SourceNoted

ONE, TWO = "A" * 24, "B" * 24
#: A float that is not a number, which the edge accepts from nobody.
BAD = np.array([np.nan], "<f4").tobytes()
#: 56,000 bytes.
SOUND = sound(1.75)
FLOATS = msgspec.structs.replace(STREAM, content_type="audio/x-raw; rate=16000; format=f32")


class Counting(Fingerprint):
    """Records how many patches were scored together."""

    def __init__(self) -> None:
        super().__init__()
        self.together: list[int] = []

    def scores_of(self, patches: Sequence[Floats]) -> Sequence[Floats]:
        self.together.append(len(patches))
        return super().scores_of(patches)


@contextmanager
def lagging(studio: Studio) -> Iterator[None]:
    """Begin no step during the body."""
    with mock.patch.object(studio.analyser.ready, "take", return_value=None):
        yield
    studio.analyser.ready.wake()


@pytest.mark.parametrize("cache_bytes", [0, 40_000, 10**9], ids=["log", "both", "memory"])
async def test_stream_windows_match_whole_recording(tmp_path: Path, cache_bytes: int) -> None:
    data = sound(4.3)
    async with playing(tmp_path, cache_bytes=cache_bytes) as studio:
        await studio.send(ONE, STREAM)
        await studio.upload(ONE, pieces(data))
        await studio.settle()
        # The last window is padded, and comes with the seal.
        assert studio.scores(ONE) == truth(data)[:-TAGS]
        assert not studio.head(ONE).in_progress
        await studio.send(ONE, Sealed("c"))
    assert studio.scores(ONE) == truth(data)
    assert studio.head(ONE).finished
    assert studio.store.audio(ONE, 0, 100) == []


async def test_sessions_are_analysed_concurrently(tmp_path: Path) -> None:
    async with playing(tmp_path, Meeting()) as studio:
        for session, seed in ((ONE, 1), (TWO, 2)):
            await studio.send(session, STREAM, Chunk("c", 0, sound(1, seed)))
    assert studio.scores(ONE) == truth(sound(1, 1))
    assert studio.scores(TWO) == truth(sound(1, 2))


async def test_failing_patch_fails_only_its_stream(tmp_path: Path) -> None:
    """Streams are scored together; one of them has a sound that crashes the model."""
    sounds = {f"{number:024}": sound(2, number) for number in range(6)}
    bad = f"{3:024}"
    sounds[bad] = sounds[bad][:16_000] + bytes([0, 4]) * 24_000

    class Delicate(Counting):
        """Crashes on samples that are all the same."""

        def scores_of(self, patches: Sequence[Floats]) -> Sequence[Floats]:
            found = super().scores_of(patches)
            if any((patch == patch[0]).all() for patch in patches):
                raise EngineError("all the same")
            return found

    engine = Delicate()
    async with playing(tmp_path, engine) as studio:
        for session in sounds:
            await studio.send(session, STREAM)
        for number in range(4):
            for session, audio in sounds.items():
                await studio.send(session, Chunk("c", number, pieces(audio)[number]))
    assert "all the same" in str(studio.head(bad).error)
    assert all(studio.scores(session) == truth(audio) for session, audio in sounds.items() if session != bad)
    assert max(engine.together) > 1


@pytest.mark.parametrize(("sessions", "seconds", "together"), [(8, 4, range(7, 8)), (4, 40, range(17))])
async def test_long_step_does_not_delay_other_streams(
    tmp_path: Path, sessions: int, seconds: float, together: range
) -> None:
    """Nor does the rest of a chunk that is longer than a step."""
    sounds = {f"{number:024}": sound(seconds, number) for number in range(sessions)}
    engine = Counting()
    async with playing(tmp_path, engine, workers=1) as studio:
        for session, audio in sounds.items():
            await studio.send(session, STREAM, Chunk("c", 0, audio))
    assert {studio.scores(session) == truth(audio) for session, audio in sounds.items()} == {True}
    assert all(count in together for count in engine.together)
    assert sum(engine.together) * TAGS == sum(len(studio.scores(session)) for session in sounds)


async def test_unreadable_row_does_not_end_actor(tmp_path: Path) -> None:
    """Neither in a step nor when the progress of the failed session is read."""
    data = sound(1)
    async with playing(tmp_path) as studio:
        await studio.send(ONE, STREAM, Chunk("c", 0, data))
        faults = [RecordError("not a row"), RecordError("not a row"), *[mock.DEFAULT] * 100]
        with mock.patch.object(studio.store, "head", wraps=studio.store.head, side_effect=faults):
            await studio.settle()
    assert studio.scores(ONE) == truth(data)


async def test_lagging_streams_share_log_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Thirty sessions without audio in memory, and with more of it than the read-ahead buffer holds."""
    sessions = [f"{number:024}" for number in range(30)]
    audio = pieces(sound(4))
    monkeypatch.setattr(audio_source, "AHEAD_BYTES", 60 * len(audio[0]))
    async with playing(tmp_path, workers=1) as studio:
        studio.commands.together = 24
        for session in sessions:
            await studio.send(session, STREAM)
        with lagging(studio):
            for number, chunk in enumerate(audio):
                for session in sessions:
                    await studio.send(session, Chunk("c", number, chunk))
    assert {studio.scores(session) for session in sessions} == {truth(b"".join(audio))}
    # Reading by session would read each record 24 times.
    records = len(sessions) * len(audio)
    assert (studio.commands.reads, studio.commands.read) == (records // studio.commands.together, records)


async def test_lagging_stream_reads_whole_step_at_once(tmp_path: Path) -> None:
    """On a log with single reads; some of the audio is in memory."""
    audio = pieces(sound(8))
    async with playing(tmp_path, cache_bytes=2 * (len(audio[0]) + RECORD_COST)) as studio:
        with lagging(studio):
            await studio.send(ONE, STREAM)
            await studio.upload(ONE, audio)
    assert studio.scores(ONE) == truth(b"".join(audio))
    assert (studio.commands.reads, studio.commands.read) == (1, len(audio) - 2)


async def test_audio_counts_in_cache_until_worker_has_taken_it(tmp_path: Path) -> None:
    engine, data = Gated(), sound(1)
    async with playing(tmp_path, engine, workers=1, cache_bytes=10**9) as studio:
        for session in (ONE, TWO):
            await studio.send(session, STREAM, Chunk("c", 0, data))
        await asyncio.to_thread(engine.begun.wait, 10)
        assert studio.audio.size == 2 * (len(data) + RECORD_COST)
        engine.gate.set()
    assert studio.audio.size == studio.commands.reads == 0
    assert studio.scores(ONE) == studio.scores(TWO) == truth(data)


async def test_file_is_gathered_in_several_turns_once_complete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "GATHERED_CHUNKS", 4)
    data = sound(70, seed=3)
    async with playing(tmp_path) as studio:
        await studio.send(ONE, FILE)
        await studio.upload(ONE, pieces(data, 7.7))
        await studio.settle()
        assert studio.written == []
        with mock.patch.object(studio.store, "audio", wraps=studio.store.audio) as audio:
            await studio.send(ONE, Sealed("c"))
            await studio.settle()
    assert studio.scores(ONE) == truth(data)
    assert studio.head(ONE).finished
    assert len(studio.written) > 1
    assert [call.args[1:] for call in audio.call_args_list] == [(0, 4), (4, 8), (8, 10)]


async def test_slow_disk_does_not_stop_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loop, went_on = asyncio.get_running_loop(), threading.Event()

    class Slow(io.FileIO):
        def __init__(self, dir: Path) -> None:
            super().__init__(dir / "slow", "w+")

        def writelines(self, iterable: Iterable[bytes]) -> None:  # type: ignore[override]
            loop.call_soon_threadsafe(went_on.set)
            assert went_on.wait(60), "the loop waits for the disk"
            super().writelines(iterable)

    monkeypatch.setattr(tempfile, "TemporaryFile", Slow)
    monkeypatch.setattr(files, "GATHERED_BYTES", 40_000)
    async with playing(tmp_path) as studio:
        await studio.send(ONE, FILE)
        await studio.upload(ONE, pieces(sound(4)))
        await studio.send(ONE, Sealed("c"))
    assert studio.scores(ONE) == truth(sound(4))
    assert went_on.is_set()


@pytest.mark.parametrize(
    ("chunks", "heard", "total"),
    [
        pytest.param([], b"", None, id="no audio"),
        pytest.param(
            [SOUND[:32_000], SOUND[32_000:] + bytes(5000)], SOUND, len(SOUND), id="the rest of the last chunk"
        ),
        pytest.param([SOUND[:32_000], SOUND[32_000:] + bytes(5000)], SOUND, len(SOUND) + 1, id="and a part of a frame"),
        pytest.param([SOUND[:32_000], bytes(2)], SOUND[:32_000], 32_001, id="a chunk of a part of a frame"),
        pytest.param([SOUND[:32_000], bytes(3)], SOUND[:32_000], 32_001, id="a chunk of parts of two frames"),
    ],
)
@pytest.mark.parametrize("opened", [STREAM, FILE], ids=["stream", "file"])
async def test_audio_beyond_total_size_is_ignored(
    tmp_path: Path, opened: Opened, chunks: list[bytes], heard: bytes, total: int | None
) -> None:
    async with playing(tmp_path) as studio:
        await studio.send(ONE, msgspec.structs.replace(opened, total_size=total))
        await studio.upload(ONE, chunks)
        await studio.send(ONE, Sealed("c"))
    assert studio.scores(ONE) == truth(heard)
    assert (studio.head(ONE).finished, studio.head(ONE).error) == (True, None)


async def test_encoded_chunk_beyond_total_size_is_analysed_whole(tmp_path: Path) -> None:
    chunk = encoded(np.frombuffer(SOUND, "<i2"))
    async with playing(tmp_path) as studio:
        await studio.send(ONE, Opened("c", "stream", "audio/wav", "p", 1000, 500, total_size=len(chunk) - 1000))
        await studio.send(ONE, Chunk("c", 0, chunk))
    assert studio.scores(ONE) == truth(SOUND)
    assert (studio.head(ONE).finished, studio.head(ONE).error) == (True, None)


# --- faults ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("opened", [STREAM, FILE], ids=["stream", "file"])
@pytest.mark.parametrize(
    "fault", [Unavailable("the broker is away"), LogDamaged("the log is damaged"), OSError("disk")], ids=repr
)
async def test_transient_faults_are_retried(tmp_path: Path, fault: Exception, opened: Opened) -> None:
    data = sound(2)
    async with playing(tmp_path) as studio:
        studio.commands.faults = [fault] * 8
        studio.refusals = [fault] * 8
        await studio.send(ONE, opened, *(Chunk("c", n, chunk) for n, chunk in enumerate(pieces(data))), Sealed("c"))
    assert studio.scores(ONE) == truth(data)
    assert studio.failures(ONE) == []
    assert studio.store.audio(ONE, 0, 100) == []


@pytest.mark.parametrize("fault", [Unavailable("the broker is away"), OSError("disk")], ids=repr)
async def test_outages_do_not_count_as_attempts(tmp_path: Path, fault: Exception) -> None:
    """One unexpected error after any number of outages is the first, and is retried."""
    data = sound(1)
    async with playing(tmp_path) as studio:
        studio.commands.faults = [*[fault] * 4, RuntimeError("odd"), *[fault] * 4, RuntimeError("odd")]
        await studio.send(ONE, STREAM, Chunk("c", 0, data), Sealed("c"))
    assert studio.failures(ONE) == []
    assert studio.scores(ONE) == truth(data)


@pytest.mark.parametrize(
    ("fault", "message"),
    [(RuntimeError("a bug"), "internal error"), (EngineError("the model failed"), "the model failed")],
)
async def test_persistent_error_ends_session_after_three_attempts(
    tmp_path: Path, fault: Exception, message: str
) -> None:
    engine = Faulty(*[fault] * 10)
    async with playing(tmp_path, engine) as studio:
        await studio.send(ONE, STREAM, Chunk("c", 0, sound(1)))
        await studio.settle()
        await studio.send(TWO, STREAM)
    assert len(studio.failures(ONE)) == 1
    assert message in studio.failures(ONE)[0]
    assert len(engine.faults) == 7


@pytest.mark.parametrize(
    ("opened", "audio", "reason", "windows"),
    [
        (FLOATS, BAD, "chunk 0: the float samples are not all finite numbers: one is nan", 0),
        (FILE, sound(2) + b"\0", "the audio is damaged: its last frame has 1 of 2 bytes", 3),
    ],
    ids=["stream", "file"],
)
async def test_rejected_failure_is_retried_with_its_reason(
    tmp_path: Path, opened: Opened, audio: bytes, reason: str, windows: int
) -> None:
    """A file's windows are in the log then, and its audio is decoded again."""
    async with playing(tmp_path) as studio:
        studio.failures_refused = 6
        await studio.send(ONE, opened, Chunk("c", 0, audio), Sealed("c"))
    assert studio.failures(ONE) == [reason]
    assert studio.scores(ONE) == truth(sound(2))[: windows * TAGS]
    assert studio.store.audio(ONE, 0, 1) == []


async def test_crashed_actor_is_reported(tmp_path: Path) -> None:
    studio = Studio(Fingerprint(), tmp_path)
    async with studio:
        studio.refusals = [RuntimeError("the log failed for good")] * 9
        await studio.send(ONE, FLOATS, Chunk("c", 0, BAD))
        await until(lambda: studio.ended)
        assert "for good" in str(studio.ended[0])


@pytest.mark.parametrize(
    ("projects", "cost", "steps"), [(["one"], 0.006, 1), (["one", "two"], 0.006, 6), (["one", "two"], 0.0006, 1)]
)
async def test_steps_are_short_while_projects_compete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, projects: list[str], cost: float, steps: int
) -> None:
    """How many chunks of 0.5 s that is depends on what the model costs."""
    monkeypatch.setattr("streams.workers.workers.SHARED_SECONDS", math.inf)
    monkeypatch.setattr(process, "FIRST_COST", cost)
    async with playing(tmp_path, cache_bytes=10**9) as studio:
        for number in range(2):
            opened = msgspec.structs.replace(STREAM, project=projects[number % len(projects)])
            await studio.send((session := new_id()), opened)
            await studio.upload(session, pieces(sound(6), 0.5))
            await studio.settle()
    last = studio.written[-1][0]
    assert len([session for session, _ in studio.written if session == last]) == steps


# --- notes of the source --------------------------------------------------------------------------------------------


def noted(studio: Studio, session: str) -> list[tuple[str | None, int]]:
    """Return the reason of each note that the analysis has come to, and the window before which it is."""
    return [(note.reason, note.window) for note in studio.store.notes(session, 0)][: studio.head(session).heard]


async def test_note_keeps_its_place_in_audio_that_lags(tmp_path: Path) -> None:
    """A step takes many chunks, but none beyond a note; the windows are as without notes."""
    data = sound(6)
    async with playing(tmp_path) as studio:
        with lagging(studio):
            await studio.send(ONE, STREAM, SourceNoted("n", "source.lost", 1, "a"))
            for number, piece in enumerate(pieces(data)):
                await studio.send(ONE, Chunk("c", number, piece))
                if number in (3, 4):
                    await studio.send(ONE, SourceNoted("n", "source.back", 1, f"b{number}"))
            await studio.send(ONE, SourceNoted("n", "source.silent", 1, "c"), Sealed("s"))
    assert noted(studio, ONE) == [("a", 0), ("b3", 3), ("b4", 4), ("c", 11)]
    assert studio.scores(ONE) == truth(data)
    assert studio.head(ONE).finished
    heard = [new for _, new in studio.written if new.notes]
    assert [len(new.scores) for new in heard] == [0] * len(heard), "each note has a step of its own"


@pytest.mark.parametrize("restarts", [False, True])
async def test_note_of_an_idle_stream_is_heard_at_once(tmp_path: Path, restarts: bool) -> None:
    async with playing(tmp_path) as studio:
        await studio.send(ONE, STREAM, Chunk("c", 0, sound(1)))
        await studio.settle()
        if restarts:
            await studio.stop()
            studio.restart()
            await studio.start()
        await studio.send(ONE, SourceNoted("n", "source.lost", 1, "a"), SourceNoted("n", "source.back", 1, "b"))
        await studio.settle()
        assert noted(studio, ONE) == [("a", 1), ("b", 1)]
        assert not studio.head(ONE).has_unheard
        await studio.send(ONE, Chunk("d", 1, sound(1, 2)))
    assert studio.scores(ONE) == truth(sound(1) + sound(1, 2))[: 3 * TAGS]


async def test_note_before_the_first_sample_is_heard(tmp_path: Path) -> None:
    """A chunk that completes no sample leaves the cursor at the beginning."""
    async with playing(tmp_path) as studio:
        await studio.send(ONE, STREAM, Chunk("c", 0, b"\x01"), SourceNoted("n", "source.silent", 1, "a"))
        await studio.settle()
        assert noted(studio, ONE) == [("a", 0)]
        await studio.send(ONE, Chunk("d", 1, b"\x01" + sound(1)))
        await studio.settle()
    assert studio.head(ONE).windows == 1
