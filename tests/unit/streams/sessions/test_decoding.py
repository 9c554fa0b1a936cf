"""Encoded audio is decoded step by step, whatever a chunk contains; the windows equal those of one pass."""

import io
import re
from pathlib import Path
from unittest import mock

import msgspec
import numpy as np
import pytest

from streams.audio.analysis import Analysis, score_alone
from streams.audio.decode import decode_chunk, open_file
from streams.sessions import analyser, files
from streams.sessions.metering import charges
from streams.workers import progress, recordings
from streams.workers.progress import StreamProgress
from tests.audio import encoded, noise
from tests.unit.streams.audio.engines import TAGS, Fingerprint
from tests.unit.streams.sessions.studio import FILE, RATE, STREAM, Studio, playing
from tests.unit.streams.workers.asking import beginning
from tests.waiting import until
from topics.geometry import SESSIONS
from topics.media import parse
from topics.sessions.records import Chunk, Deleted, Metered, Opened, Sealed

pytestmark = pytest.mark.slow

ANY = parse("application/octet-stream")
OPENED = msgspec.structs.replace(STREAM, content_type="application/octet-stream")
OPENED_FILE = msgspec.structs.replace(FILE, content_type="application/octet-stream")


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make steps so small that two seconds need several."""
    monkeypatch.setattr(progress, "STEP_SAMPLES", 10_000)
    monkeypatch.setattr(recordings, "STEP_SAMPLES", 10_000)
    monkeypatch.setattr(recordings, "BLOCK_SAMPLES", 3000)
    monkeypatch.setattr("streams.audio.decode.BLOCK_SAMPLES", 3000)


def flac(seconds: float, seed: int = 0, rate: int = RATE) -> bytes:
    return encoded(noise(int(seconds * rate), seed), rate, "FLAC")


def truth(*chunks: bytes) -> bytes:
    """Return the windows of all chunks, analysed at once."""
    decoded = [decode_chunk(chunk, ANY) for chunk in chunks]
    analysis = Analysis(Fingerprint(), SESSIONS, decoded[0].rate)
    return analysis.feed(np.concatenate([audio.samples for audio in decoded])) + analysis.finish()


async def begin(studio: Studio) -> None:
    """Start a process from the rows."""
    await studio.stop()
    studio.restart()
    await studio.start()
    for session in {key for key, _ in studio.written}:
        studio.analyser.enqueue(session)


def session(number: int) -> str:
    return f"{number:024}"


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("kind", ["FLAC", "OGG"])
async def test_long_chunk_is_analysed_in_several_steps(tmp_path: Path, kind: str) -> None:
    chunks = [encoded(noise(int(seconds * RATE), n), RATE, kind) for n, seconds in enumerate((0.4, 0.5, 9.3, 0.1, 5.0))]
    async with playing(tmp_path) as studio:
        await studio.send(session(1), OPENED)
        await studio.upload(session(1), chunks)
        await studio.send(session(1), Sealed("c"))
    assert studio.scores(session(1)) == truth(*chunks)
    steps = [new.count for _, new in studio.written]
    assert max(steps) <= 3, "a step is no longer than its samples"
    assert studio.head(session(1)).finished


@pytest.mark.usefixtures("small")
async def test_restart_within_chunk_changes_no_window(tmp_path: Path) -> None:
    """Nothing is scored twice, and the windows are the same, even with a restart at every window."""
    chunks = [flac(seconds, n) for n, seconds in enumerate((0.7, 8.3, 0.6, 4.1))]
    async with playing(tmp_path) as studio:
        await studio.send(session(1), OPENED)
        await studio.upload(session(1), chunks)
        await studio.send(session(1), Sealed("c"))
        while not studio.head(session(1)).finished:
            before = len(studio.scores(session(1)))
            await until(lambda: len(studio.scores(session(1))) != before or studio.head(session(1)).finished)  # noqa: B023
            await begin(studio)
    assert studio.scores(session(1)) == truth(*chunks)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("held", [1, 3])
async def test_sessions_share_limited_decoders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, held: int) -> None:
    monkeypatch.setattr(files, "MOST_HELD", held)
    audio = {session(n): flac(4 + n % 3, n) for n in range(12)}
    async with playing(tmp_path) as studio:
        for number, (key, data) in enumerate(audio.items()):
            await studio.send(key, OPENED_FILE if number % 2 else OPENED, Chunk("c", 0, data), Sealed("c"))
        # A deleted session does not delay the others.
        await studio.send(session(3), Deleted("c"))
        await studio.settle()
        assert not studio.analyser._files._holding
    for key, data in audio.items():
        if key != session(3):
            assert studio.scores(key) == truth(data)


async def test_decoder_of_forgotten_session_goes_to_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MOST_HELD", 1)
    monkeypatch.setattr(analyser, "TIDY_SECONDS", 0.02)
    async with playing(tmp_path) as studio:
        decoders = studio.analyser._files
        assert decoders._hold("another")
        for number in (1, 2):
            await studio.send(session(number), OPENED_FILE, Chunk("c", 0, flac(1)), Sealed("c"))
        await until(lambda: len(decoders._awaiting) == 2)
        first, second = decoders._awaiting
        with mock.patch.object(studio.analyser.ready, "take", return_value=None):
            decoders._release("another")
            assert list(decoders._awaiting) == [second]
            await studio.send(first, Deleted("c"))
    assert studio.scores(second) == truth(flac(1))


HEADER, HALF = encoded(np.empty(0), RATE), flac(6)[: len(flac(6)) // 2]
NAN = np.where(np.arange(3 * RATE) < RATE, noise(3 * RATE), np.nan)


@pytest.mark.parametrize(
    ("opened", "chunks", "heard", "failures"),
    [
        # Some recorders send it first, others with each pause; it has no audio, so time does not go on.
        pytest.param(OPENED, [HEADER, flac(3), HEADER, HEADER], flac(3), [], id="headers alone end no stream"),
        pytest.param(OPENED_FILE, [HALF], HALF, [], id="a file that was cut off is analysed to its end"),
        # Audio no longer than a step is decoded completely before it is scored.
        pytest.param(
            OPENED,
            [flac(3), encoded(NAN, RATE, "WAV", "FLOAT")],
            flac(3),
            ["chunk 1: the float samples are not all finite numbers: one is nan"],
            id="a damaged chunk yields no windows",
        ),
    ],
)
async def test_what_is_no_whole_audio(
    tmp_path: Path, opened: Opened, chunks: list[bytes], heard: bytes, failures: list[str]
) -> None:
    async with playing(tmp_path) as studio:
        await studio.send(session(1), opened)
        await studio.upload(session(1), chunks)
        await studio.send(session(1), Sealed("c"))
    assert studio.failures(session(1)) == failures
    assert studio.scores(session(1)) == truth(heard)
    assert len(truth(heard)) > 3 * TAGS


@pytest.mark.parametrize("coder", ["VORBIS", "OPUS"])
async def test_silence_stands_for_a_lost_page(tmp_path: Path, coder: str) -> None:
    """In a file, no model hears the windows in it, and the ledger leaves them out."""
    whole = encoded(noise(30 * RATE), RATE, "OGG", coder)
    damaged = bytearray(whole)
    lost = [page.start() for page in re.finditer(b"OggS", whole)][4:8]
    for page in lost:
        damaged[page + 100] ^= 0xFF
    async with playing(tmp_path) as studio:
        for number, data in enumerate((bytes(damaged), whole)):
            await studio.send(session(number), OPENED_FILE, Chunk("c", 0, data), Sealed("c"))
        await studio.settle()
    assert [studio.failures(session(number)) for number in range(2)] == [[], []]
    audio = open_file(io.BytesIO(damaged), ANY)
    list(audio.blocks())
    ((first, end),) = SESSIONS.within(audio.gaps, audio.rate)
    found, wanted = studio.scores(session(0)), studio.scores(session(1))
    assert first > 3
    assert end - first > 3
    assert not any(found[first * TAGS : end * TAGS])
    # Windows that touch the gap differ too.
    assert found[: (first - 3) * TAGS] == wanted[: (first - 3) * TAGS]
    assert found[(end + 3) * TAGS :] == wanted[(end + 3) * TAGS :]
    assert len(found) == len(wanted)
    head = studio.store.head(session(0))
    assert head is not None
    assert head.silent == ((first, end),)
    opened = studio.store.opened(session(0))
    assert opened is not None
    free, all = (
        sum(charge.audio_ms for charge in charges("s", opened, Metered("", head.windows), silent=silent))
        for silent in (head.silent, ())
    )
    assert all - free == (end - first) * SESSIONS.hop_ms


@pytest.mark.usefixtures("small")
def test_chunk_with_too_many_frames_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streams.audio.decode.MAX_CHUNK_FRAMES", 50_000)
    stream = StreamProgress(Fingerprint(), beginning(Fingerprint(), "application/octet-stream"), open_file)
    scores = [stream.take([flac(4)])]
    while stream.reading:
        scores.append(stream.take([]))
    assert scores[-1].error == "chunk 0: one chunk holds more than 50000 frames; use shorter chunks"
    assert len(scores) == 5


@pytest.mark.usefixtures("small")
async def test_predict_chunks_are_scored_alone(tmp_path: Path) -> None:
    """Only their beginning is kept, however long they are."""
    chunks = [flac(seconds, n) for n, seconds in enumerate((0.5, 7.0, 2.0, 1.0))]
    async with playing(tmp_path) as studio:
        await studio.send(session(1), OPENED)
        for number, data in enumerate(chunks):
            await studio.send(session(1), Chunk("c", number, data, predict=True))
    want = [score_alone(Fingerprint(), SESSIONS, decode_chunk(data, ANY)) for data in chunks]
    assert studio.scores(session(1)) == b"".join(want)
