"""Windows: which exist, and that cuts and restarts change no bit."""

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from streams.audio import logmel
from streams.audio.analysis import Analysis, WindowJoiner, score_alone
from streams.audio.decode import DecodedAudio
from streams.audio.resample import Resampler
from streams.models.manifest import LogMel, Waveform
from streams.models.packing import pack
from streams.models.protocol import Floats
from tests import naive
from tests.audio import noise
from tests.unit.streams.audio.engines import CED, SAMPLES, TAGS, YAMNET, Fingerprint, Pair, fingerprint
from topics.errors import EngineError
from topics.geometry import SENSE, SESSIONS, Geometry

MODEL = 16_000
GEOMETRIES = [SESSIONS, SENSE, Geometry(1000, 1000), Geometry(2000, 500)]

geometries = st.sampled_from(GEOMETRIES)
rates = st.sampled_from([8_000, MODEL, 44_056, 44_100])


def analysed(analysis: Analysis, pieces: list[Floats]) -> bytes:
    """Return all windows, after checking their order."""
    first, packed = analysis.next_window, b""
    steps: list[Callable[[], bytes]] = [*(partial(analysis.feed, piece) for piece in pieces), analysis.finish]
    for step in steps:
        windows = step()
        assert len(windows) == (analysis.next_window - first) * TAGS
        first = analysis.next_window
        packed += windows
    return packed


def context_by_definition(window: int, model: Floats, geometry: Geometry, recording: bool) -> Floats:
    """Return the checksum of a window's context for a `Pair`'s second model, cut from the whole recording's frames."""
    start, hop = window * geometry.hop_ms * 16, 160
    count = max(0, (len(model) - CED.span) // hop + 1)
    if recording:
        first = max(0, min(start // 32_000 * 200, count - 192))
        samples = np.concatenate((model, np.zeros(192 * hop + CED.span, np.float32)))
        return fingerprint(logmel.log_mel_frames(CED, samples)[first : first + 192])
    end = ((start + geometry.window_ms * 16) // MODEL * MODEL - (MODEL - 15_600) - CED.span) // hop + 1
    samples = np.concatenate((model, np.zeros(end * hop + CED.span, np.float32)))
    silence = logmel.log_mel_frames(CED, np.zeros(120 * hop + CED.span, np.float32))[:120]
    return fingerprint(np.concatenate((silence, logmel.log_mel_frames(CED, samples)[:end]))[end : end + 120])


def by_definition(
    samples: Floats, rate: int, geometry: Geometry, front: LogMel | Waveform, recording: bool | None = None
) -> bytes:
    """Return the windows of a whole recording, patch by patch, unshared; with contexts unless `recording` is None."""
    resampler = Resampler(rate, MODEL)
    model = np.concatenate((resampler.feed(samples), resampler.finish()))

    def score(patch: Floats) -> Floats:
        return fingerprint(logmel.log_mel_frames(front, patch) if isinstance(front, LogMel) else patch)

    scores = list(naive.windows(geometry, model, MODEL, front.samples, score))
    if recording is not None:
        contexts = [context_by_definition(number, model, geometry, recording) for number in range(len(scores))]
        scores = [(one + context) / np.float32(2) for one, context in zip(scores, contexts, strict=True)]
    return pack(np.stack(scores), [0.5] * TAGS) if scores else b""


@pytest.mark.parametrize("front", [YAMNET, SAMPLES], ids=["log-mel", "waveform"])
@example(geometry=SESSIONS, rate=8000, seconds=1.5, cuts=[(n + 0.5) / 12_000 for n in range(12_000)])
@example(geometry=SENSE, rate=8000, seconds=20.0, cuts=[])
@given(geometry=geometries, rate=rates, seconds=st.floats(0, 5), cuts=st.lists(st.floats(0, 1), max_size=8))
@settings(max_examples=30)
def test_windows_are_independent_of_cuts(
    front: LogMel | Waveform, geometry: Geometry, rate: int, seconds: float, cuts: list[float]
) -> None:
    samples = noise(int(rate * seconds))
    pieces = np.split(samples, [int(cut * len(samples)) for cut in sorted(cuts)])
    got = analysed(Analysis(Fingerprint(front), geometry, rate), pieces)
    assert got == by_definition(samples, rate, geometry, front)


@pytest.mark.parametrize("recording", [False, True])
@example(geometry=SESSIONS, rate=MODEL, seconds=4.98, cuts=[])
@example(geometry=SESSIONS, rate=MODEL, seconds=0.02, cuts=[])
@given(geometry=geometries, rate=rates, seconds=st.floats(0, 7), cuts=st.lists(st.floats(0, 1), max_size=8))
@settings(max_examples=30)
def test_each_window_gets_context_at_its_position(
    recording: bool, geometry: Geometry, rate: int, seconds: float, cuts: list[float]
) -> None:
    samples = noise(int(rate * seconds))
    pieces = np.split(samples, [int(cut * len(samples)) for cut in sorted(cuts)])
    got = analysed(Analysis(Pair(), geometry, rate, recording=recording), pieces)
    assert got == by_definition(samples, rate, geometry, YAMNET, recording)


@pytest.mark.parametrize(("recording", "contexts"), [(False, 10), (True, 5)])
def test_second_model_runs_once_per_context_above_gate(recording: bool, contexts: int) -> None:
    for gate, count in ((0.0, contexts), (0.8, 0)):
        engine = Pair(gate=gate)
        analysed(Analysis(engine, SESSIONS, MODEL, recording=recording), np.split(noise(10 * MODEL), 20))
        assert engine.contexts == count


@pytest.mark.parametrize("seconds", [0.5, 1.0, 3.0, 4.3])
def test_broken_recording_keeps_windows_before_break(seconds: float) -> None:
    samples = noise(round(seconds * MODEL))
    got = Analysis(Pair(), SESSIONS, MODEL, recording=True)
    packed = got.feed(samples) + got.finish(whole=False)
    complete = max(0, (len(samples) - 15_600) // 8000 + 1)
    assert len(packed) == complete * TAGS
    assert packed == by_definition(samples, MODEL, SESSIONS, YAMNET, recording=True)[: len(packed)]


@pytest.mark.parametrize("engine", [Fingerprint, Pair])
@given(geometry=geometries, rate=rates, stop=st.floats(0, 1), early=st.floats(0, 1), seconds=st.floats(0.1, 5))
@settings(max_examples=50)
def test_analysis_resumes_anywhere(
    engine: type[Fingerprint], geometry: Geometry, rate: int, stop: float, early: float, seconds: float
) -> None:
    samples = noise(int(rate * seconds))
    whole = analysed(Analysis(engine(), geometry, rate), [samples])
    interrupted = Analysis(engine(), geometry, rate)
    interrupted.feed(samples[: int(stop * len(samples))])
    at = int(early * interrupted.needed_from)
    resumed = Analysis(engine(), geometry, rate, at=at, first_window=interrupted.next_window)
    assert resumed.position == at
    assert resumed.needed_from == interrupted.needed_from
    got = analysed(resumed, np.split(samples[at:], [11, 5000]))
    assert got == whole[interrupted.next_window * TAGS :]


@pytest.mark.parametrize("engine", [partial(Fingerprint, YAMNET), partial(Fingerprint, SAMPLES), Pair])
@given(geometry=geometries, rate=rates, cut=st.floats(0, 1), silent=st.tuples(st.floats(0, 8), st.floats(0, 8)))
@settings(max_examples=30)
def test_no_model_hears_digital_silence_of_a_stream(
    engine: Callable[[], Fingerprint], geometry: Geometry, rate: int, cut: float, silent: tuple[float, float]
) -> None:
    """Also if reading begins anew within it, and however it is cut; other windows are as before."""
    samples = noise(8 * rate)
    begin, end = (int(at * rate) for at in sorted(silent))
    samples[begin:end] = 0
    whole = analysed(Analysis(engine(), geometry, rate), [samples])
    interrupted = Analysis(engine(), geometry, rate)
    interrupted.feed(samples[: int(cut * len(samples))])
    first, at = interrupted.next_window, interrupted.needed_from
    resumed = Analysis(engine(), geometry, rate, at=at, first_window=first)
    assert analysed(resumed, np.split(samples[at:], [11, 5000])) == whole[first * TAGS :]
    recording = analysed(Analysis(engine(), geometry, rate, recording=True), [samples])
    for window in range(len(whole) // TAGS):
        start = window * geometry.hop_ms / 1000
        # The model hears less than a window; a filter hears some samples beside it.
        is_silent = begin <= (start - 0.01) * rate and (start + geometry.window_ms / 1000 + 0.01) * rate <= end
        scores = whole[window * TAGS :][:TAGS]
        if is_silent:
            assert not any(scores)
        elif engine is not Pair and any(scores):
            assert scores == recording[window * TAGS :][:TAGS]


@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_window_count_matches_geometry(geometry: Geometry) -> None:
    edges = [geometry.window_ms * 16 + n * geometry.hop_ms * 16 for n in range(3)]
    lengths = [0, 1, 399, 400, 401, *(edge + more for edge in edges for more in (-401, -1, 0, 1, 399, 400, 401))]
    for length in lengths:
        analysis = Analysis(Fingerprint(), geometry, MODEL)
        analysed(analysis, [np.zeros(length, np.float32)])
        assert analysis.next_window == naive.window_count(geometry, length, MODEL), length


@pytest.mark.parametrize(
    ("rate", "pieces"),
    # The filter waits for the 67 samples on its right side only.
    [(MODEL, [15_599, 1, 7_999, 1]), (44_100, [15_599 * 44_100 // MODEL + 67, 1])],
)
@pytest.mark.parametrize("engine", [Fingerprint, Pair])
def test_window_is_scored_once_its_patch_is_complete(engine: type[Fingerprint], rate: int, pieces: list[int]) -> None:
    analysis = Analysis(engine(), SESSIONS, rate)
    assert [len(analysis.feed(noise(piece))) // TAGS for piece in pieces] == [0, 1] * (len(pieces) // 2)


@pytest.mark.parametrize(
    ("geometry", "rate", "first", "patches"),
    [(SESSIONS, MODEL, 0, 19), (SENSE, MODEL, 0, 10), (Geometry(2000, 500), MODEL, 0, 19), (SESSIONS, 44_100, 15, 4)],
)
def test_each_needed_patch_is_scored_once(geometry: Geometry, rate: int, first: int, patches: int) -> None:
    engine = Fingerprint()
    analysis = Analysis(engine, geometry, rate, first_window=first)
    analysed(analysis, np.split(noise(10 * rate), 20))
    assert (analysis.next_window, engine.asked) == (naive.window_count(geometry, 10 * MODEL, MODEL), patches)


def test_needed_position_is_reported_and_later_start_rejected() -> None:
    analysis = Analysis(Fingerprint(), SESSIONS, 44_100)
    assert analysis.needed_from == 0
    analysis.feed(noise(44_100))
    assert (analysis.next_window, analysis.needed_from, analysis.position) == (1, 22_050 - 66, 44_100)
    with pytest.raises(ValueError, match="needs input 21984"):
        Analysis(Fingerprint(), SESSIONS, 44_100, at=21_985, first_window=1)


@pytest.mark.parametrize("geometry", GEOMETRIES)
@pytest.mark.parametrize("seconds", [1 / MODEL, 0.3, 1.0, 1.01, 2.0, 5.0])
def test_single_window_matches_definition(geometry: Geometry, seconds: float) -> None:
    samples = noise(int(seconds * MODEL))
    beginning = samples[: geometry.window_ms * 16]
    got = score_alone(Fingerprint(), geometry, DecodedAudio(MODEL, samples))
    assert got == by_definition(beginning, MODEL, geometry, YAMNET)
    assert len(got) == TAGS


@pytest.mark.parametrize("seconds", [0.01, 1.0, 1.024, 1.025, 1.5, 1.525, 2.0, 2.024, 2.025, 2.5, 3.025, 7.7])
@pytest.mark.parametrize("step", [1, 2, 5])
def test_long_windows_join_scores_of_short_windows(seconds: float, step: int) -> None:
    """Each short one once, and as many long ones as a recording of that length has."""
    length = round(seconds * MODEL)
    scores = np.random.default_rng(1).random((naive.window_count(SESSIONS, length, MODEL), 3)).astype(np.float32)
    joiner, broken = WindowJoiner(), WindowJoiner()
    joined = [row for at in range(0, len(scores), step) for row in joiner.feed(scores[at : at + step])]
    joined += joiner.finish(whole=True)
    count = naive.window_count(SENSE, length, MODEL)
    assert len(joined) == joiner.next_window == count
    for number, row in enumerate(joined):
        end = len(scores) if number == count - 1 else 2 * number + 2
        assert row.tolist() == scores[2 * number : end].max(axis=0).tolist()
    # At a break in the audio, a long window counts if its second second is complete.
    whole = [row.tolist() for row in (*broken.feed(scores), *broken.finish(whole=False))]
    assert whole == [scores[2 * n : 2 * n + 2].max(axis=0).tolist() for n in range((len(scores) - 1) // 2)]


def test_incompatible_models_are_rejected() -> None:
    with pytest.raises(EngineError, match="not a whole number of the model's frames"):
        Analysis(Fingerprint(LogMel(16_000, 90, 64, 400, 170, 512, 125.0, 7500.0, 0.001)), SESSIONS, MODEL)
    with pytest.raises(EngineError, match="too short"):
        Analysis(Fingerprint(Waveform(16_000, 8_000)), SESSIONS, MODEL)
