"""Diarization with synthetic voices; clustering equals average linkage by definition."""

import itertools

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streams.models.protocol import Floats
from streams.voice.clustering import MAX_STRANGERS_COSINE, adapted_threshold, cluster, merge_clusters, sum_by_label
from streams.voice.diarization import (
    DiarizationTurn,
    EmbeddingWindow,
    SpeakerCount,
    best_path,
    cut_windows,
    diarization_turns,
    diarize,
    join_parts,
    join_turns,
    lengthen_turns,
    speaker_directions,
)
from streams.voice.speaker_manifest import DiarizationSettings, UtteranceInput
from streams.voice.speech_segments import FRAME_S, RATE, SpeechSegment
from tests.unit.streams.voice.tones import MANIFEST, SETTINGS, Ear, Tones, talk
from topics.errors import EngineError


def heard(*parts: tuple[int | None, float]) -> list[DiarizationTurn]:
    return diarize([talk(*parts)], Tones(), Ear())


def turns_of(*turns: tuple[float, float, int]) -> list[DiarizationTurn]:
    return [DiarizationTurn(*turn) for turn in turns]


def test_two_speakers_are_diarized() -> None:
    found = heard((None, 1), (3, 4), (None, 1), (0, 3), (None, 0.6), (3, 2), (None, 1))
    assert [turn.speaker for turn in found] == [0, 1, 0]
    ends = [(turn.start_s, turn.end_s) for turn in found]
    assert ends == [pytest.approx(want, abs=0.08) for want in [(1, 5), (6, 9), (9.6, 11.6)]]


def test_speaker_change_without_pause_is_found() -> None:
    found = heard((0, 4), (1, 4), (2, 4))
    assert [turn.speaker for turn in found] == [0, 1, 2]
    assert [turn.end_s for turn in found] == pytest.approx([4, 8, 12], abs=0.41)
    assert all(one.end_s == other.start_s for one, other in itertools.pairwise(found))


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5])
def test_number_of_speakers_is_found(count: int) -> None:
    found = heard(*((turn // 2 % count if turn % 2 else None, 1.0 + turn % 3) for turn in range(4 * count + 2)))
    assert {turn.speaker for turn in found} == set(range(count))
    firsts = list(dict.fromkeys(turn.speaker for turn in found))
    assert firsts == sorted(firsts)


def test_silence_has_no_turns() -> None:
    for blocks in ([talk((None, 5))], [], [np.empty(0, np.float32)]):
        assert diarize(blocks, Tones(), Ear(), count=SpeakerCount(least=32)) == []


def test_one_short_word_is_one_turn() -> None:
    (turn,) = heard((None, 0.5), (2, 0.3), (None, 0.5))
    assert turn.speaker == 0
    assert turn.end_s - turn.start_s == pytest.approx(0.3, abs=0.13)


def test_cough_is_not_a_new_speaker() -> None:
    found = heard((0, 4), (None, 1), (4, 0.4), (None, 1), (0, 4))
    assert {turn.speaker for turn in found} == {0}


@pytest.mark.parametrize(
    ("seconds", "found"),
    [([20.0, 4.0], 2), ([100.0, 4.0], 2), ([300.0, 4.0], 1), ([5000.0, 4.0], 1), ([5000.0, 10.0, 9.9], 2)],
)
def test_minimum_speech_per_speaker_grows_to_ten_seconds(seconds: list[float], found: int) -> None:
    count = len(seconds)
    assert len(speaker_directions(np.eye(count), np.ones(count), np.array(seconds), 0.5)) == found


@pytest.mark.parametrize(("seconds", "found"), [(14.9, 2), (15.0, 1)])
def test_long_clusters_are_merged_at_plain_threshold(seconds: float, found: int) -> None:
    """Two clusters with a distance of 0.4, which the stricter first pass keeps separate."""
    sums, sizes = np.array([[20.0, 0.0], [12.0, 16.0]]), np.array([20.0, 20.0])
    means = speaker_directions(sums, sizes, np.array([60.0, seconds]), 0.41)
    assert len(means) == found
    assert np.linalg.norm(means, axis=1) == pytest.approx(1)
    assert len(speaker_directions(sums, sizes, np.array([60.0, seconds]), 0.39)) == 2


@pytest.mark.parametrize(
    ("count", "speakers"),
    [(SpeakerCount(most=2), 2), (SpeakerCount(most=1), 1), (SpeakerCount(least=3), 3), (SpeakerCount(2, 4), 3)],
)
def test_number_of_speakers_is_capped(count: SpeakerCount, speakers: int) -> None:
    samples = talk((0, 4), (None, 1), (1, 4), (None, 1), (2, 4), (None, 1), (0, 4))
    assert len({turn.speaker for turn in diarize([samples], Tones(), Ear(), count=count)}) == speakers


@pytest.mark.parametrize("least", [2, 3])
def test_minimum_number_of_speakers_is_honoured(least: int) -> None:
    """Three directions, closer to each other than the threshold."""
    spread = np.repeat(np.eye(3, 4) * 0.5 + np.array([0, 0, 0, 1.0]), 8, axis=0)
    rng = np.random.default_rng(0)
    vectors = spread + rng.normal(0, 0.02, spread.shape)
    vectors = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
    spans = [SpeechSegment(2.0 * number, 2.0 * number + 1.6) for number in range(len(vectors))]
    windows = [EmbeddingWindow(span, span) for span in spans]
    assert {turn.speaker for turn in diarization_turns(windows, vectors, SETTINGS)} == {0}
    found = diarization_turns(windows, vectors, SETTINGS, SpeakerCount(least=least))
    assert {turn.speaker for turn in found} == set(range(least))


def test_minimum_above_window_count_gives_one_speaker_per_window() -> None:
    samples = talk((0, 1.2), (None, 1), (1, 1.2))
    assert len({turn.speaker for turn in diarize([samples], Tones(), Ear(), count=SpeakerCount(least=32))}) == 2


def test_turns_grow_into_gaps_and_merge_over_pauses() -> None:
    longer = lengthen_turns(turns_of((0.1, 2.0, 0), (2.2, 3.0, 1), (4.5, 5.0, 1), (6.9, 9.9, 1)), 10.0, 1.0)
    expected = [(0.0, 2.1, 0), (2.1, 5.3, 1), (6.6, 10.0, 1)]
    assert [(turn.start_s, turn.end_s, turn.speaker) for turn in longer] == [pytest.approx(one) for one in expected]
    assert lengthen_turns(turns_of((0.0, 2.0005, 0)), 2.0, 1.0) == turns_of((0.0, 2.0, 0)), "none ends after the audio"
    for without_gap in ([], turns_of((0.0, 2.0, 0), (2.0, 4.0, 1))):
        assert lengthen_turns(without_gap, 4.0, 1.0) == without_gap


PARTS = ((0, 3), (None, 0.4), (1, 2.5), (2, 2), (None, 1), (0, 0.4), (None, 0.7), (1, 3.3))


@given(cuts=st.lists(st.integers(0, 200_000), max_size=6))
@settings(max_examples=6, deadline=None)
def test_chunking_does_not_change_turns(cuts: list[int]) -> None:
    samples = talk(*PARTS)
    blocks = np.split(samples, sorted(min(cut, len(samples)) for cut in cuts))
    assert diarize(blocks, Tones(), Ear()) == heard(*PARTS)


def test_long_audio_is_embedded_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three minutes of two speakers without a pause: embedding uses views of about a minute."""
    longest = 0
    embed = Tones.embed

    def watched(self: Tones, samples: Floats) -> Floats:
        nonlocal longest
        base = samples.base if samples.base is not None else samples
        longest = max(longest, len(base))
        return embed(self, samples)

    monkeypatch.setattr(Tones, "embed", watched)
    minute = talk((0, 30), (1, 30))
    found = diarize((minute for _ in range(3)), Tones(), Ear())
    assert [turn.speaker for turn in found] == [0, 1] * 3
    assert longest < 62 * RATE


def test_unsuitable_engine_is_rejected() -> None:
    with pytest.raises(EngineError, match="no settings for diarization"):
        diarize([], Tones(msgspec.structs.replace(MANIFEST, diarization=None)), Ear())
    eight = UtteranceInput(sample_rate=8000, min_samples=4000, max_samples=80_000)
    with pytest.raises(EngineError, match="takes another rate"):
        diarize([], Tones(msgspec.structs.replace(MANIFEST, input=eight)), Ear())


@given(
    start=st.integers(0, 300),
    length=st.integers(1, 2000),
    window=st.sampled_from([1.0, 1.6, 2.4]),
    hops=st.integers(1, 4),
)
def test_windows_cover_segment(start: int, length: int, window: float, hops: int) -> None:
    segment = SpeechSegment(start * FRAME_S, (start + length) * FRAME_S)
    made = cut_windows(segment, DiarizationSettings(window, window / hops, 0.5))
    assert made[0].span.start_s == made[0].part.start_s == segment.start_s
    assert made[-1].part.end_s == segment.end_s
    assert made[-1].span.end_s == pytest.approx(segment.end_s)
    for one, other in itertools.pairwise(made):
        assert one.part.end_s == other.part.start_s
        assert 0 < other.span.start_s - one.span.start_s <= window / hops + 1e-6
        assert one.span.end_s - one.span.start_s == pytest.approx(window)


@given(steps=st.integers(1, 6), speakers=st.integers(1, 3), seed=st.integers(0, 999), change=st.floats(0, 1))
@settings(max_examples=60, deadline=None)
def test_smoothing_finds_best_path(steps: int, speakers: int, seed: int, change: float) -> None:
    scores = np.random.default_rng(seed).uniform(0, 1, (steps, speakers))

    def worth(path: tuple[int, ...]) -> float:
        changes = sum(one != other for one, other in itertools.pairwise(path))
        return float(sum(scores[step, state] for step, state in enumerate(path)) - change * changes)

    best = max(map(worth, itertools.product(range(speakers), repeat=steps)))
    assert worth(tuple(best_path(scores, change).tolist())) == pytest.approx(best)


def window(start: float, end: float) -> EmbeddingWindow:
    return EmbeddingWindow(SpeechSegment(start, end), SpeechSegment(start, end))


def test_turns_are_joined_over_breaths_but_not_other_speakers() -> None:
    parts = [window(0, 1), window(1.2, 2), window(2.1, 3), window(3.1, 4), window(5, 6)]
    found = join_parts(parts, np.array([4, 4, 2, 4, 4]))
    assert found == turns_of((0, 2, 0), (2.1, 3, 1), (3.1, 4, 0), (5, 6, 0))


def test_rotating_vectors_does_not_change_turns() -> None:
    """Rotating the space of all voices changes nothing: only cosines count."""
    rng = np.random.default_rng(5)
    rotation = np.linalg.qr(rng.normal(size=(8, 8)))[0].astype(np.float32)
    vectors = np.eye(8, dtype=np.float32)[[0, 0, 1, 1, 0, 2, 2, 1]] + 0.2 * rng.normal(size=(8, 8)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    parts = [window(2 * step, 2 * step + 1.6) for step in range(8)]
    found = diarization_turns(parts, vectors, SETTINGS)
    assert [turn.speaker for turn in found] == [0, 0, 1, 1, 0, 2, 2, 1]
    assert diarization_turns(parts, vectors @ rotation, SETTINGS) == found


def test_turns_are_joined_over_pauses_of_one_speaker() -> None:
    turns = turns_of((0.0, 1.0, 0), (1.4, 2.0, 0), (2.0, 3.0, 1), (3.1, 4.0, 0), (5.1, 6.0, 0))
    assert join_turns(turns, 1.0) == turns_of((0.0, 2.0, 0), (2.0, 3.0, 1), (3.1, 4.0, 0), (5.1, 6.0, 0))
    assert join_turns(turns, 0.3) == turns
    assert join_turns([], 1.0) == []


def voices(speakers: list[int], spread: float = 0.5, seed: int = 0) -> Floats:
    """Return unit vectors around a direction per speaker, with deviations of length `spread`."""
    rng = np.random.default_rng(seed)
    centres = np.linalg.qr(rng.normal(size=(32, 32)))[0]
    noise = rng.normal(size=(len(speakers), 32))
    vectors = centres[speakers] + spread * noise / np.linalg.norm(noise, axis=1, keepdims=True)
    unit: Floats = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
    return unit


def naive(vectors: Floats, threshold: float) -> list[int]:
    """Average linkage over lists of members, computing each mean over pairs anew."""
    distances = 1.0 - vectors.astype(np.float64) @ vectors.T.astype(np.float64)
    groups = [[index] for index in range(len(vectors))]
    while len(groups) > 1:
        pairs = [(distances[np.ix_(a, b)].mean(), i, j) for i, a in enumerate(groups) for j, b in enumerate(groups[:i])]
        nearest, i, j = min(pairs)
        if nearest >= threshold:
            break
        groups[j] += groups.pop(i)
    groups.sort(key=min)
    return [next(number for number, group in enumerate(groups) if index in group) for index in range(len(vectors))]


@given(count=st.integers(1, 25), dimension=st.integers(2, 6), threshold=st.floats(0.05, 1.9), seed=st.integers(0, 99))
@settings(max_examples=60, deadline=None)
def test_clusters_equal_average_linkage(count: int, dimension: int, threshold: float, seed: int) -> None:
    vectors = np.random.default_rng(seed).normal(size=(count, dimension))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    assert cluster(vectors.astype(np.float32), threshold).tolist() == naive(vectors.astype(np.float32), threshold)


@pytest.mark.parametrize("block", [7, 50, 1024])
def test_block_size_does_not_change_speakers(block: int) -> None:
    speakers = np.random.default_rng(1).integers(0, 5, 200)
    _, first = np.unique(speakers, return_index=True)
    number = {speaker: rank for rank, speaker in enumerate(speakers[np.sort(first)])}
    want = [number[speaker] for speaker in speakers]
    assert cluster(voices(speakers.tolist()), 0.6, block=block).tolist() == want


def test_extreme_thresholds_and_empty_input() -> None:
    vectors = voices([0, 1, 2, 3])
    assert cluster(vectors, 1e-6).tolist() == [0, 1, 2, 3]
    assert cluster(vectors, 2.1).tolist() == [0, 0, 0, 0]
    assert cluster(voices([0]), 0.5).tolist() == [0]
    assert cluster(np.empty((0, 8), np.float32), 0.5).tolist() == []


def test_number_of_clusters_is_limited() -> None:
    strangers = np.random.default_rng(3).normal(size=(300, 64))
    strangers /= np.linalg.norm(strangers, axis=1, keepdims=True)
    labels = cluster(strangers.astype(np.float32), 1e-6, block=50, most=20)
    assert labels.max() + 1 == 20
    assert len(np.unique(labels)) == 20


def test_merging_clusters_equals_merging_their_vectors() -> None:
    vectors = voices([0, 0, 1, 1, 1, 0], spread=1.0).astype(np.float64)
    parts = np.array([0, 0, 1, 1, 2, 3])
    merged = merge_clusters(sum_by_label(vectors, parts), sum_by_label(np.ones(6), parts), 0.7, 512)
    means = 1.0 - np.array(
        [[vectors[parts == a].mean(0) @ vectors[parts == b].mean(0) for a in range(4)] for b in range(4)]
    )
    np.fill_diagonal(means, np.inf)
    a, b = np.unravel_index(means.argmin(), means.shape)
    assert merged[a] == merged[b]


def test_threshold_adapts_to_common_room_direction() -> None:
    """A room adds one direction to all vectors; the threshold applies to distances without it."""
    speakers = [0, 1, 2] * 12
    vectors = voices(speakers, spread=1.0)
    roomy = vectors + 0.5 * voices([31])
    roomy /= np.linalg.norm(roomy, axis=1, keepdims=True)
    strangers = (vectors @ vectors.T)[np.not_equal.outer(speakers, speakers)].mean()
    assert strangers < 0.02
    assert adapted_threshold(0.8, vectors) == 0.8
    assert adapted_threshold(0.8, roomy) == pytest.approx(0.73, abs=0.01)
    assert adapted_threshold(0.8, voices([0] * 30)) == pytest.approx(0.8 * (1 - MAX_STRANGERS_COSINE))


@pytest.mark.parametrize("speakers", [[0] * 9 + [1] + [0] * 9 + [1], [0, 1, 0], [0]], ids=["another", "few", "one"])
def test_second_voice_or_few_windows_keep_threshold(speakers: list[int]) -> None:
    assert adapted_threshold(0.8, voices(speakers)) == 0.8


def test_threshold_is_adapted_from_vector_sample() -> None:
    vectors = voices([0, 1] * 300)
    assert adapted_threshold(0.8, vectors, block=99) == adapted_threshold(0.8, vectors[::7])
    assert adapted_threshold(0.8, vectors, block=99) == pytest.approx(adapted_threshold(0.8, vectors), abs=0.03)
