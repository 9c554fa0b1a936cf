"""Segments of a recording: each contains everything its windows depend on, at any rate, and fits a worker's memory."""

import mmap
import socket
from collections.abc import Callable, Generator
from functools import partial
from pathlib import Path
from typing import cast
from unittest import mock

import msgspec
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from streams.audio import decode
from streams.audio.analysis import Analysis
from streams.models.packing import pack
from streams.models.protocol import Floats
from streams.services import sound
from streams.services.sound import SegmentCutter, SegmentReader
from streams.workers import messages
from streams.workers.messages import Segment
from streams.workers.worker import Worker
from tests.audio import encoded, noise
from tests.unit.streams.audio.engines import SAMPLES, TAGS, Fingerprint, Pair
from topics.geometry import SESSIONS
from topics.media import MAX_RATE, MIN_RATE, parse

RATES = [MIN_RATE, 8000, 11_025, 16_000, 22_050, 44_056, 44_100, 44_101, 48_000, 96_000, 192_000, MAX_RATE]


def scored(engine: Fingerprint, segment: Segment, samples: Floats) -> Floats:
    """Return a worker's scores of the segment alone."""
    length = messages.LENGTH.size
    memory = mmap.mmap(-1, messages.memory_bytes((1 + (length + samples.nbytes) // mmap.PAGESIZE) * mmap.PAGESIZE))
    memory[length : length + samples.nbytes] = samples.tobytes()
    worker = Worker(cast(socket.socket, None), memory, {engine.manifest.model_id: engine})
    work: Generator[None, None, bytes] = worker._score_segment(0, segment)
    while True:
        try:
            next(work)
        except StopIteration as end:
            return np.frombuffer(end.value, np.float32).reshape(-1, TAGS)


def cut(engine: Fingerprint, rate: int, samples: Floats, cuts: list[float]) -> list[tuple[Segment, Floats]]:
    cutter = SegmentCutter(engine.manifest, rate)
    pieces = np.split(samples, [int(at * len(samples)) for at in sorted(cuts)])
    segments = [one for piece in pieces for one in cutter.feed(piece)]
    return [*segments, cutter.finish(whole=True)]


@pytest.mark.parametrize("make", [Fingerprint, partial(Fingerprint, SAMPLES), Pair], ids=["log-mel", "waveform", "two"])
@given(
    rate=st.sampled_from(RATES),
    seconds=st.floats(0, 6),
    windows=st.integers(1, 4),
    cuts=st.lists(st.floats(0, 1), max_size=4),
)
@example(rate=16_000, seconds=0.0, windows=1, cuts=[])
@example(rate=8000, seconds=5.0, windows=2, cuts=[n / 500 for n in range(500)])
@settings(max_examples=40)
def test_segments_have_windows_of_whole_recording(
    make: Callable[[], Fingerprint], rate: int, seconds: float, windows: int, cuts: list[float]
) -> None:
    samples, engine = noise(int(rate * seconds)), make()
    with mock.patch.object(sound, "SEGMENT_WINDOWS", windows):
        segments = cut(engine, rate, samples, cuts)
    rows: list[Floats] = []
    for number, (segment, audio) in enumerate(segments):
        assert segment.first == len(rows)
        assert segment.length == audio.nbytes
        assert segment.last == (number == len(segments) - 1)
        assert np.array_equal(audio, samples[segment.at : segment.at + len(audio)])
        rows.extend(scored(engine, segment, audio))
    analysis = Analysis(make(), SESSIONS, rate, recording=True)
    expected = analysis.feed(samples) + analysis.finish()
    assert (pack(np.stack(rows), engine.manifest.points(recording=True)) if rows else b"") == expected


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("make", [Fingerprint, Pair])
def test_segment_fits_slot_at_every_rate(make: type[Fingerprint], rate: int) -> None:
    """The last may be the longest: it has the rest that completes no further segment."""
    engine = make()
    segments = cut(engine, rate, np.zeros(rate * 40, np.float32), [n / 100 for n in range(100)])
    room = messages.slot_bytes(0) - messages.HEADER_BYTES
    assert max(audio.nbytes for _, audio in segments) <= room
    assert len(segments) > 1


def far_sighted() -> Pair:
    """Return two models, the second of which hears five seconds at a time."""
    engine = Pair()
    second = engine.manifest.second
    assert second is not None
    recording = msgspec.structs.replace(second.recording, frames=496, hop_ms=5000)
    front = msgspec.structs.replace(second.input, frames=496)
    second = msgspec.structs.replace(second, input=front, recording=recording)
    engine.manifest = msgspec.structs.replace(engine.manifest, second=second)
    return engine


@pytest.mark.parametrize("rate", [48_000, 192_000, MAX_RATE])
def test_segments_of_five_seconds_fit_slot_at_every_rate(tmp_path: Path, rate: int) -> None:
    """Those that would not are cut at the model's rate, with the same scores."""
    engine, path, samples = far_sighted(), tmp_path / "a", noise(13 * rate)
    path.write_bytes(encoded(samples, rate, "WAV", "FLOAT"))
    reader = SegmentReader(path, parse("audio/wav"), engine.manifest, decode.open_file)
    rows: list[Floats] = []
    while (read := reader.next()) is not None:
        segment, audio, _ = read
        assert audio.nbytes <= messages.AUDIO_BYTES
        rows.extend(scored(engine, segment, audio))
    assert reader.audio_ms == 13_000
    analysis = Analysis(far_sighted(), SESSIONS, rate, recording=True)
    expected = analysis.feed(samples) + analysis.finish()
    assert pack(np.stack(rows), engine.manifest.points(recording=True)) == expected


@pytest.mark.parametrize("make", [Fingerprint, Pair])
def test_no_window_spans_a_break_in_the_audio(make: type[Fingerprint]) -> None:
    engine, samples = make(), noise(40_000)
    cutter = SegmentCutter(engine.manifest, 16_000)
    list(cutter.feed(samples))
    segment, audio = cutter.finish(whole=False)
    analysis = Analysis(make(), SESSIONS, 16_000, recording=True)
    expected = analysis.feed(samples) + analysis.finish(whole=False)
    assert pack(scored(engine, segment, audio), engine.manifest.points(recording=True)) == expected
