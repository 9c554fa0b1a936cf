"""Segments of a recording: each contains everything its windows depend on, at any rate."""

from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path
from unittest import mock

import msgspec
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from streams.audio.analysis import Analysis
from streams.models.packing import pack
from streams.models.protocol import Floats
from streams.workers import recordings
from streams.workers.messages import RecordingEnd, Segment, SegmentScores
from streams.workers.recordings import Cut, SegmentCutter, SegmentScorer, score_cut
from tests.audio import encoded, noise
from tests.unit.streams.audio.engines import SAMPLES, TAGS, Fingerprint, Pair
from topics.geometry import SESSIONS
from topics.media import MAX_RATE, MIN_RATE, parse

RATES = [MIN_RATE, 8000, 11_025, 16_000, 22_050, 44_056, 44_100, 44_101, 48_000, 96_000, 192_000, MAX_RATE]


def scored(engine: Fingerprint, cut: Cut, rate: int) -> Floats:
    """Return the scores of the segment alone."""
    return np.frombuffer(score_cut(engine, cut, rate), np.float32).reshape(-1, TAGS)


def cut(engine: Fingerprint, rate: int, samples: Floats, cuts: list[float]) -> list[Cut]:
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
    with mock.patch.object(recordings, "SEGMENT_WINDOWS", windows):
        segments = cut(engine, rate, samples, cuts)
    rows: list[Floats] = []
    for number, one in enumerate(segments):
        assert one.first_window == len(rows)
        assert one.last == (number == len(segments) - 1)
        assert np.array_equal(one.samples, samples[one.at : one.at + len(one.samples)])
        rows.extend(scored(engine, one, rate))
    analysis = Analysis(make(), SESSIONS, rate, recording=True)
    expected = analysis.feed(samples) + analysis.finish()
    assert (pack(np.stack(rows), engine.manifest.points(recording=True)) if rows else b"") == expected


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


def asked(scorer: SegmentScorer, number: int) -> SegmentScores:
    """Ask for a segment until the scorer has come to it."""
    while True:
        answer = scorer.scores(number)
        if answer.scores is not None or answer.end is not None:
            return answer


@pytest.mark.parametrize("rate", [48_000, 192_000, MAX_RATE])
def test_scorers_share_a_recording(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rate: int) -> None:
    """Each decodes all of it, a bounded piece at a time, and scores its share of the segments."""
    monkeypatch.setattr(recordings, "AHEAD_SAMPLES", rate)
    engine, path, samples = far_sighted(), tmp_path / "a", noise(33 * rate)
    path.write_bytes(encoded(samples, rate, "WAV", "FLOAT"))
    request = Segment(0, parse("audio/wav"), engine.manifest.model_id)
    rows: list[Floats] = []
    with path.open("rb") as file:
        scorers = [SegmentScorer(file.fileno(), request, engine) for _ in range(2)]
        for number in count():
            answer = asked(scorers[number % 2], number)
            if answer.scores is None:
                break
            rows.extend(np.frombuffer(answer.scores, np.float32).reshape(-1, TAGS))
        assert scorers[0].scores(number + 1).end == answer.end
    assert number > 3
    assert answer.end == RecordingEnd(33_000, None, None, 0)
    analysis = Analysis(far_sighted(), SESSIONS, rate, recording=True)
    expected = analysis.feed(samples) + analysis.finish()
    assert pack(np.stack(rows), engine.manifest.points(recording=True)) == expected


@pytest.mark.parametrize("make", [Fingerprint, Pair])
def test_no_window_spans_a_break_in_the_audio(make: type[Fingerprint]) -> None:
    engine, samples = make(), noise(40_000)
    cutter = SegmentCutter(engine.manifest, 16_000)
    list(cutter.feed(samples))
    rest = cutter.finish(whole=False)
    analysis = Analysis(make(), SESSIONS, 16_000, recording=True)
    expected = analysis.feed(samples) + analysis.finish(whole=False)
    assert pack(scored(engine, rest, 16_000), engine.manifest.points(recording=True)) == expected
