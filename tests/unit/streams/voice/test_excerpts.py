"""Excerpts: the longest turns of each speaker, bounded in length and number."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from streams.models.protocol import Floats
from streams.voice.diarization import DiarizationTurn
from streams.voice.excerpts import MAX_EXCERPT_S, MAX_SPEAKERS, excerpts
from streams.voice.speech_segments import RATE


def cut(first: int, end: int) -> Floats:
    """Return samples whose value is their time in seconds."""
    return (np.arange(first, end) / RATE).astype(np.float32)


def made(lengths: list[tuple[int, float]]) -> list[DiarizationTurn]:
    """Return consecutive turns of (speaker, seconds), speakers numbered as they appear."""
    turns, at, numbers = [], 0.0, dict[int, int]()
    for speaker, seconds in lengths:
        turns.append(DiarizationTurn(at, at + seconds, numbers.setdefault(speaker, len(numbers))))
        at += seconds
    return turns


@given(st.lists(st.tuples(st.integers(0, 3), st.floats(0.1, 20)), max_size=10))
@settings(max_examples=25, deadline=None)
def test_excerpts_hold_all_speech_up_to_limit(lengths: list[tuple[int, float]]) -> None:
    turns = made(lengths)
    found = excerpts(turns, cut)
    assert len(found) == len({turn.speaker for turn in turns})
    for speaker, samples in enumerate(found):
        said = sum(turn.end_s - turn.start_s for turn in turns if turn.speaker == speaker)
        assert abs(len(samples) / RATE - min(said, MAX_EXCERPT_S)) < 0.01
        assert len(np.unique(samples)) == len(samples)


def test_longest_turns_are_excerpted_first() -> None:
    (found,) = excerpts(made([(0, 5.0), (0, 28.0), (0, 3.0)]), cut)
    assert (found[0], len(found)) == (5.0, 30 * RATE)
    assert np.array_equal(found[28 * RATE :], cut(0, 2 * RATE)), "then some of the next longest"


def test_only_most_active_speakers_get_excerpts() -> None:
    found = excerpts(made([(n, 1.0 + n / 100) for n in range(MAX_SPEAKERS + 3)]), cut)
    assert [len(samples) > 0 for samples in found] == [False] * 3 + [True] * MAX_SPEAKERS
    assert excerpts([], cut) == []
